"""How fresh weights are drawn: torchtitan's recipe for each family, with `initializer_range` in the place of its 0.02.

A published shape (whose range is 0.02) starts from exactly the distribution of torchtitan's own flavour. Not covered by
`initializer_range`, as in torchtitan: the llama and deepseek embeddings (std 1) and output projection (std
hidden_size^-1/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torchtitan.models.common.param_init import depth_scaled_std, skip_param_init

ParamInit = dict[str, Callable[[torch.Tensor], object]]

ONES: ParamInit = {"weight": nn.init.ones_}
UNIT_NORMAL: ParamInit = {"weight": partial(nn.init.normal_, std=1.0)}
TIED: ParamInit = {"weight": skip_param_init}


def truncated(std: float) -> ParamInit:
    """Truncated normal weights of standard deviation `std`, zero biases."""
    return {"weight": partial(nn.init.trunc_normal_, std=std), "bias": nn.init.zeros_}


def truncated_by_depth(std: float, layer: int) -> ParamInit:
    """Like `truncated`, smaller with depth: std / sqrt(2 * (layer + 1))."""
    return truncated(depth_scaled_std(std, layer))


def truncated_output(hidden_size: int) -> ParamInit:
    """Output projection: std hidden_size^-1/2, cut at three standard deviations."""
    std = hidden_size**-0.5
    return {"weight": partial(nn.init.trunc_normal_, std=std, a=-3 * std, b=3 * std), "bias": nn.init.zeros_}


def normal(std: float) -> ParamInit:
    """Normal weights of standard deviation `std`, zero biases."""
    return {"weight": partial(nn.init.normal_, std=std), "bias": nn.init.zeros_}


def normal_by_layers(std: float, layers: int) -> ParamInit:
    """Like `normal`, smaller in a model of many layers: std / sqrt(2 * layers)."""
    return normal(_std_by_layers(std, layers))


def experts_by_layers(std: float, layers: int) -> ParamInit:
    """The three matrices of normal routed experts; the one that ends them as in `normal_by_layers`."""
    plain = partial(nn.init.normal_, std=std)
    return {"w1_EFD": plain, "w2_EDF": partial(nn.init.normal_, std=_std_by_layers(std, layers)), "w3_EFD": plain}


def _std_by_layers(std: float, layers: int) -> float:
    return std / math.sqrt(2 * layers)


def experts_by_depth(std: float, layer: int) -> ParamInit:
    """The three matrices of the routed experts; the two that leave the gate shrink with depth."""
    deep = depth_scaled_std(std, layer)
    return {
        "w1_EFD": partial(nn.init.trunc_normal_, std=std),
        "w2_EDF": partial(nn.init.trunc_normal_, std=deep),
        "w3_EFD": partial(nn.init.trunc_normal_, std=deep),
    }
