"""Rotary positions: the neutral `rope_theta` and `rope_scaling` as arguments of Megatron's classes.

Where they go depends on the attention: a GPTModel computes them for all layers, a latent attention computes its own.
Megatron's yarn outside latent attention reads fields that its configuration class does not declare; a class that
declares them is used then. What Megatron cannot say is refused by `limits`, not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from megatron.core.transformer.transformer_config import TransformerConfig

from primus_hydra.config.schema.model import ModelConfig


@dataclass
class YarnTransformerConfig(TransformerConfig):  # type: ignore[misc]
    """A TransformerConfig with the yarn fields that GPTModel looks for; Megatron takes their presence for yarn."""

    yarn_rotary_scaling_factor: float = 1.0
    yarn_original_max_position_embeddings: int = 4096
    yarn_beta_fast: float = 32.0
    yarn_beta_slow: float = 1.0
    yarn_mscale: float = 1.0
    yarn_mscale_all_dim: float = 0.0
    yarn_correction_range_round_to_int: bool = True


def model_positions(model: ModelConfig) -> dict[str, Any]:
    """Return the arguments of `GptModel` that place the positions of grouped-query attention."""
    scaling = model.rope_scaling
    positions: dict[str, Any] = {"position_embedding_type": "rope", "rotary_base": model.rope_theta}
    match scaling.rope_type:
        case "llama3":
            return {**positions, "rope_scaling": True, "rope_scaling_factor": scaling.factor}
        case "linear":
            return {**positions, "seq_len_interpolation_factor": scaling.factor}
        case "yarn":
            return {**positions, "position_embedding_type": "yarn"}
    return positions


def yarn_fields(model: ModelConfig) -> dict[str, Any]:
    """Return the fields of `YarnTransformerConfig`."""
    scaling = model.rope_scaling
    return {
        "yarn_rotary_scaling_factor": scaling.factor,
        "yarn_original_max_position_embeddings": scaling.original_max_position_embeddings,
        "yarn_beta_fast": scaling.beta_fast,
        "yarn_beta_slow": scaling.beta_slow,
        "yarn_mscale": scaling.mscale,
        "yarn_mscale_all_dim": scaling.mscale_all_dim,
        "yarn_correction_range_round_to_int": scaling.truncate,
    }


def latent_positions(model: ModelConfig) -> dict[str, Any]:
    """Return the fields of MLATransformerConfig that place the positions of latent attention.

    Without yarn the scaling factor must be 1: Megatron multiplies the softmax scale by yarn's term in any case.
    """
    scaling = model.rope_scaling
    if scaling.rope_type != "yarn":
        return {"rope_type": "rope", "rotary_base": model.rope_theta, "rotary_scaling_factor": 1.0}
    return {
        "rope_type": "yarn",
        "rotary_base": model.rope_theta,
        "rotary_scaling_factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_max_position_embeddings,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "mscale": scaling.mscale,
        "mscale_all_dim": scaling.mscale_all_dim,
    }
