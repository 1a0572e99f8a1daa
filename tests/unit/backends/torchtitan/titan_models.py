"""Neutral models for tests, and their torchtitan counterparts built on this processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml
from torchtitan.config.override import OverrideConfig, apply_overrides
from torchtitan.protocols.model_spec import ModelSpec

import primus_hydra.conf
from primus_hydra.backends.torchtitan.cpu_attention import create_block_mask_on_cpu
from primus_hydra.config.build import build
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.patches.torchtitan.attention import CPU_ATTENTION

CONF = Path(primus_hydra.conf.__file__).parent / "model"
SHIPPED = (
    "llama3_tiny",
    "llama3_8b",
    "llama3_70b",
    "llama3_1_8b",
    "qwen3_0_6b",
    "qwen3_8b",
    "deepseek_v2_lite",
)

BASE: dict[str, Any] = {
    "name": "small",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
LATENT: dict[str, Any] = {
    **BASE,
    "architecture": "deepseek_v2",
    "num_key_value_heads": None,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}


def neutral(base: dict[str, Any] | None = None, **values: Any) -> ModelConfig:
    """Build a small neutral model; `values` are keys of ModelConfig."""
    model, problems = build(ModelConfig, {**(base or BASE), **values})
    assert model is not None, problems
    return model


def shipped(name: str) -> ModelConfig:
    """Read one of the model files of this project."""
    return neutral(yaml.safe_load((CONF / f"{name}.yaml").read_text()))


def on_meta(spec: ModelSpec) -> Any:
    """Build a model without memory."""
    with torch.device("meta"):
        return spec.model.build()


def on_cpu(spec: ModelSpec) -> Any:
    """Build a model with the CPU attention, and initialise it."""
    apply_overrides(OverrideConfig(imports=[CPU_ATTENTION]), spec.model)
    model = spec.model.build()
    with torch.no_grad():
        model.init_weights()
    return model


def logits(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Run a model causally over (batch, length) tokens, one document per row."""
    length = tokens.shape[1]
    positions = torch.arange(length).expand_as(tokens)
    mask = create_block_mask_on_cpu(lambda b, h, q, k: q >= k, tokens.shape[0], None, length, length)
    return model(tokens, positions=positions, attention_masks=mask)
