"""Jobs for the Megatron backend: tiny ones on a processor, with words for a GPU and for a model with experts."""

from __future__ import annotations

from typing import Any

from primus_hydra.config.schema import JobConfig
from tests.support import make_job

MEGATRON: dict[str, Any] = {
    "backend._target_": "primus_hydra.backends.megatron.adapter.MegatronAdapter",
    "backend.name": "megatron",
}
GPU: dict[str, Any] = {
    "platform.name": "h100",
    "platform.vendor": "nvidia",
    "platform.arch": "sm_90",
    "platform.gpus_per_node": 8,
    "training.micro_batch_size": 1,
    "training.global_batch_size": 64,
    "data.kind": "mock",
}
LATENT: dict[str, Any] = {
    "model.architecture": "deepseek_v2",
    "model.num_key_value_heads": None,
    "model.num_hidden_layers": 4,
    "model.kv_lora_rank": 16,
    "model.qk_nope_head_dim": 16,
    "model.qk_rope_head_dim": 8,
    "model.v_head_dim": 12,
    "model.n_routed_experts": 8,
    "model.n_shared_experts": 2,
    "model.num_experts_per_tok": 3,
    "model.moe_intermediate_size": 32,
    "model.first_k_dense_replace": 1,
}
"""A small DeepSeek-V2."""
V3: dict[str, Any] = {
    **LATENT,
    "model.architecture": "deepseek_v3",
    "model.scoring_func": "sigmoid",
    "model.norm_topk_prob": True,
}
"""A small DeepSeek-V3."""


def megatron_job(overrides: dict[str, Any] | None = None) -> JobConfig:
    """Build a tiny valid job for `backend=megatron`; `overrides` are dotted keys."""
    return make_job({**MEGATRON, **(overrides or {})})
