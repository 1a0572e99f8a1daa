"""Routed experts: the neutral keys of DeepSeek, Mixtral and Qwen3-MoE as fields of Megatron's TransformerConfig.

Scores are computed in float32. Experts are balanced by the loss of each sequence when `aux_loss_alpha` is set, and in
DeepSeek-V3, as published, by a router bias that moves by 1e-3 after each step.
"""

from __future__ import annotations

from typing import Any, Final

from primus_hydra.backends.megatron.models.limits import limits_groups
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.config.schema.parallel import ParallelConfig

_BIAS_SPEED: Final = 1e-3


def expert_fields(model: ModelConfig, parallel: ParallelConfig, *, engine: bool) -> dict[str, Any]:
    """Return the fields for routed experts; none for a dense model. `engine`: layers of Transformer Engine."""
    if not model.is_moe:
        return {}
    width, layers = model.expert_width, range(model.num_hidden_layers)
    return {
        "num_moe_experts": model.n_routed_experts,
        "moe_ffn_hidden_size": width,
        "moe_shared_expert_intermediate_size": (model.n_shared_experts or 0) * width or None,
        "moe_layer_freq": 1 if model.moe_layers == len(layers) else [int(model.routes(layer)) for layer in layers],
        "expert_model_parallel_size": parallel.ep,
        "expert_tensor_parallel_size": parallel.etp,
        # The one dispatcher that every layout can use.
        "moe_token_dispatcher_type": "alltoall",
        "moe_grouped_gemm": engine,
        **_router(model),
        **_balance(model),
    }


def _router(model: ModelConfig) -> dict[str, Any]:
    limited = limits_groups(model)
    return {
        "moe_router_topk": model.num_experts_per_tok,
        "moe_router_score_function": model.scoring_func,
        # A softmax over the chosen experts' logits is the normalised softmax over all of them.
        "moe_router_pre_softmax": model.scoring_func == "softmax" and not model.norm_topk_prob,
        "moe_router_topk_scaling_factor": model.routed_scaling_factor,
        "moe_router_num_groups": model.n_group if limited else None,
        "moe_router_group_topk": model.topk_group if limited else None,
        "moe_router_dtype": "fp32",
    }


def _balance(model: ModelConfig) -> dict[str, Any]:
    return {
        "moe_router_load_balancing_type": "seq_aux_loss" if model.aux_loss_alpha else "none",
        "moe_aux_loss_coeff": model.aux_loss_alpha,
        "moe_router_enable_expert_bias": model.architecture == "deepseek_v3",
        "moe_router_bias_update_rate": _BIAS_SPEED,
    }
