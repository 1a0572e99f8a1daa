"""Neutral models for tests, and their torchtitan counterparts built on this processor."""

from __future__ import annotations

import dataclasses
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
EVERY_NAME = tuple(file.stem for file in sorted(CONF.glob("*.yaml")) if file.stem != "hf")
"""Models of this project."""
SHIPPED = tuple(name for name in EVERY_NAME if not name.startswith(("gpt_oss", "llama4")))
"""Models of this project that torchtitan builds."""

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


FEW_LAYERS = 4
WHOLE = ("llama3_tiny", "llama3_8b", "qwen2_5_7b", "qwen3_0_6b", "deepseek_v2_lite")
"""Models that are built in their whole depth; of the others, whose layers are alike, a few tell as much."""


def shipped(name: str) -> ModelConfig:
    """Read one of the model files of this project."""
    return neutral(yaml.safe_load((CONF / f"{name}.yaml").read_text()))


def shallow(name: str) -> ModelConfig:
    """Read a model file, with few layers unless the model is small."""
    model = shipped(name)
    return model if name in WHOLE else dataclasses.replace(model, num_hidden_layers=FEW_LAYERS, parameters=None)


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
