"""Tiny models of every family whose Hugging Face form is known, in neutral keys."""

from __future__ import annotations

from typing import Any

EXPERTS: dict[str, Any] = {"n_routed_experts": 4, "num_experts_per_tok": 2}
MLA: dict[str, Any] = {
    "architecture": "deepseek_v3",
    "num_key_value_heads": None,
    "rms_norm_eps": 1e-6,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "moe_intermediate_size": 32,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "n_group": 2,
    "topk_group": 1,
    **EXPERTS,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "qwen2": {"architecture": "qwen2"},
    "qwen3": {"architecture": "qwen3", "head_dim": 32},
    "qwen3_moe": {
        **{"architecture": "qwen3_moe", "moe_intermediate_size": 32, "norm_topk_prob": True, "head_dim": 16},
        **EXPERTS,
    },
    "mixtral": {"architecture": "mixtral", "norm_topk_prob": True, **EXPERTS},
    "deepseek_v2": {
        **{**MLA, "architecture": "deepseek_v2", "q_lora_rank": None, "scoring_func": "softmax"},
        **{"n_group": None, "topk_group": None, "norm_topk_prob": False},
    },
    "deepseek_v3": MLA,
}
"""By name; the sizes that are not named here are those of `tests.support.make_job`."""


def dotted(family: str) -> dict[str, Any]:
    """Return the keys of a family's model as overrides."""
    return {f"model.{name}": value for name, value in FAMILIES[family].items()}
