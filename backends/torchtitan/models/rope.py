"""Rotary positions: the neutral `rope_theta` and `rope_scaling` as torchtitan RoPE configurations.

torchtitan computes the llama3 and yarn frequencies itself. What it leaves out is yarn's attention factor, the number
by which `transformers` multiplies cosines and sines; the two subclasses here add it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torchtitan.models.common import ComplexRoPE, CosSinRoPE, RoPE

from primus_hydra.config.schema.model import ModelConfig, RopeScaling

Layout = Literal["pairs", "halves"]


class TemperedComplexRoPE(ComplexRoPE):  # type: ignore[misc]
    """Rotation of neighbouring pairs, times a constant attention factor."""

    @dataclass(kw_only=True, slots=True)
    class Config(ComplexRoPE.Config):  # type: ignore[misc]
        """Adds the factor on cosines and sines."""

        attention_factor: float = 1.0

    def _precompute_cache(self) -> torch.Tensor:
        cache: torch.Tensor = super()._precompute_cache()
        return cache * float(self.config.attention_factor)


class TemperedCosSinRoPE(CosSinRoPE):  # type: ignore[misc]
    """Rotation of the two halves of a head, times a constant attention factor."""

    @dataclass(kw_only=True, slots=True)
    class Config(CosSinRoPE.Config):  # type: ignore[misc]
        """Adds the factor on cosines and sines."""

        attention_factor: float = 1.0

    def _precompute_cache(self) -> torch.Tensor:
        cache: torch.Tensor = super()._precompute_cache()
        return cache * float(self.config.attention_factor)


_PLAIN = {"pairs": ComplexRoPE.Config, "halves": CosSinRoPE.Config}
_TEMPERED = {"pairs": TemperedComplexRoPE.Config, "halves": TemperedCosSinRoPE.Config}


def rope_config(model: ModelConfig, *, width: int, seq_length: int, layout: Layout) -> RoPE.Config:
    """Return the RoPE configuration for `width` rotary dimensions and `seq_length` positions.

    `layout` is torchtitan's for the family: neighbouring "pairs" (llama, deepseek) or "halves" (qwen3). Scaling that
    torchtitan lacks is refused by `limits.model_problems`, not here.
    """
    common: dict[str, Any] = {"dim": width, "max_seq_len": seq_length, "theta": model.rope_theta}
    scaling = model.rope_scaling
    if scaling.rope_type == "llama3":
        return ComplexRoPE.Config(**common, **_llama3(scaling))
    if scaling.rope_type != "yarn":
        return _PLAIN[layout](**common)
    factor = attention_factor(scaling)
    if factor == 1.0:
        return _PLAIN[layout](**common, **_yarn(scaling))
    return _TEMPERED[layout](**common, **_yarn(scaling), attention_factor=factor)


def attention_factor(scaling: RopeScaling) -> float:
    """Return yarn's factor on cosines and sines: m(mscale) / m(mscale_all_dim), where m(x) = 0.1 x ln(factor) + 1.

    Source: `_compute_yarn_parameters` of transformers, and DeepSeek-V2's `yarn_get_mscale`.
    """
    return _mscale(scaling.factor, scaling.mscale) / _mscale(scaling.factor, scaling.mscale_all_dim)


def _mscale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0


def _llama3(scaling: RopeScaling) -> dict[str, Any]:
    return {
        "scaling": "llama",
        "scaling_factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_max_position_embeddings,
    }


def _yarn(scaling: RopeScaling) -> dict[str, Any]:
    return {
        "scaling": "yarn",
        "rope_factor": scaling.factor,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "original_seq_len": scaling.original_max_position_embeddings,
        "truncate": scaling.truncate,
    }
