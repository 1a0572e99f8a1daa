"""Patches of mixtures of experts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from primus_hydra.patches.megatron.conditions import BACKENDS, VERSIONS, engine_missing, on_cpu
from primus_hydra.patching import PatchContext, register_patch


@register_patch(
    "megatron.moe-te-gemm",
    backend=BACKENDS,
    phase="build_args",
    versions=">=0.16,<0.17",
    condition=engine_missing,
    why="the router asks whether `te_general_gemm` is None, a name that exists only where Transformer Engine does: "
    "NameError in the first step of every model with experts",
)
def name_the_missing_gemm(context: PatchContext) -> None:
    """Define the name as None, as later versions do."""
    from megatron.core.transformer.moe import moe_utils

    vars(moe_utils).setdefault("te_general_gemm", None)


@register_patch(
    "megatron.moe-split-sizes",
    backend=BACKENDS,
    phase="build_args",
    versions=VERSIONS,
    condition=on_cpu,
    tags=("cpu",),
    why="how many tokens each rank sends is turned from a tensor into numbers only if it lies on a GPU; gloo's "
    "exchange refuses a tensor: TypeError with the alltoall dispatcher and expert parallelism",
)
def count_tokens_in_numbers(context: PatchContext) -> None:
    """Turn the counts into numbers on a processor too."""
    import torch
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    def moved(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    moe_utils.maybe_move_tensor_to_cpu = moved
    token_dispatcher.maybe_move_tensor_to_cpu = moved


@register_patch(
    "megatron.moe-balance-scale",
    backend=BACKENDS,
    phase="build_args",
    versions=">=0.16,<0.19",
    tags=("correctness",),
    why="where gradients are divided by the number of tokens, the router multiplies its balance and z losses by the "
    "tokens of its own part of the sequence: split over n tensor or context parallel ranks, experts are silently "
    "balanced with an n-th of the coefficient",
)
def count_the_whole_sequence(context: PatchContext) -> None:
    """Multiply these losses by the tokens of the whole sequence, as later versions do."""
    from megatron.core.transformer.moe import router

    if isinstance(router.MoEAuxLossAutoScaler, _WholeSequence):
        return
    scaler = _WholeSequence(router.MoEAuxLossAutoScaler)
    router.MoEAuxLossAutoScaler = scaler
    for name in ("attach_and_log_load_balancing_loss", "apply_z_loss"):
        setattr(router.TopKRouter, name, _with_parts(getattr(router.TopKRouter, name), scaler))


class _WholeSequence:
    """Stands for the function that gives a loss its gradient, with the loss times the parts of the sequence."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self.parts = 1

    def apply(self, activation: Any, loss: Any) -> Any:
        """Return the activation; its backward adds the gradient of the loss."""
        return self._original.apply(activation, loss * self.parts)


def _with_parts(method: Callable[..., Any], scaler: _WholeSequence) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        scaler.parts = self.tp_cp_group.size() if self.calculate_per_token_loss else 1
        return method(self, *args, **kwargs)

    return wrapped
