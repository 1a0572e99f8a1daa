"""Norms for layers without Transformer Engine that also work under sequence parallelism.

Megatron's own local norm refuses sequence parallelism only because its weight is not marked: each rank normalises its
part of the sequence, so the weight's gradients must be summed over the tensor parallel ranks. Megatron does that for
parameters that carry `sequence_parallel`, and these do. Outside sequence parallelism they equal Megatron's local norm.
Refused: weights centred around zero, which torch's norms do not know.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig

from primus_hydra.errors import Problem, UserError


class LocalRMSNorm(torch.nn.RMSNorm):
    """Root mean square norm over the last dimension, of width `hidden_size`."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        _require_plain_weights(config)
        super().__init__(hidden_size, eps=eps)
        _mark(self, config)


class LocalLayerNorm(torch.nn.LayerNorm):
    """Layer norm over the last dimension, of width `hidden_size`, with a bias."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        _require_plain_weights(config)
        super().__init__(hidden_size, eps=eps)
        _mark(self, config)


def local_norm(config: TransformerConfig) -> type[torch.nn.Module]:
    """Return the class of the norm that `normalization` names; raises UserError if there is none."""
    if config.normalization == "RMSNorm":
        return LocalRMSNorm
    if config.normalization == "LayerNorm":
        return LocalLayerNorm
    what = f"local layers have no norm called {config.normalization!r}"
    raise UserError(Problem(key="backend.config.transformer.normalization", what=what, hint="RMSNorm or LayerNorm"))


def _mark(norm: torch.nn.Module, config: TransformerConfig) -> None:
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


def _require_plain_weights(config: TransformerConfig) -> None:
    if config.layernorm_zero_centered_gamma:
        what = "only Transformer Engine has norms with weights centred around zero"
        raise UserError(Problem(key="backend.config.transformer.layernorm_zero_centered_gamma", what=what))
