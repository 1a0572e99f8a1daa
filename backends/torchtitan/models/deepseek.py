"""The DeepSeek-V2 and V3 families: latent attention, and routed experts after the first dense layers.

Experts are balanced as published: V3 by a router bias that torchtitan moves after each step (1e-3), both by the balance
loss when `aux_loss_alpha` is set. V2 has no bias, so that its weights mean the same outside torchtitan.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import cast

from torchtitan.models.common import FeedForward
from torchtitan.models.common.config_utils import (
    make_ffn_config,
    make_moe_config,
    make_routed_experts_config,
    make_router_config,
)
from torchtitan.models.common.moe import MoE, TokenChoiceTopKRouter
from torchtitan.models.deepseek_v3 import make_mla_attention_config
from torchtitan.models.deepseek_v3.model import Attention, DeepSeekV3Model, DeepSeekV3TransformerBlock

from primus_hydra.backends.torchtitan.models import initializers as init
from primus_hydra.backends.torchtitan.models.rope import rope_config
from primus_hydra.backends.torchtitan.models.router import BalancedRouter
from primus_hydra.backends.torchtitan.models.shape import Shape

_BIAS_SPEED = 1e-3


def deepseek_config(shape: Shape) -> DeepSeekV3Model.Config:
    """Return torchtitan's configuration of a DeepSeek-V2 or V3 of any size."""
    model = shape.model
    return DeepSeekV3Model.Config(
        dim=model.hidden_size,
        vocab_size=shape.vocab_size,
        tok_embeddings=shape.embedding(init.UNIT_NORMAL),
        norm=shape.norm(model.hidden_size),
        lm_head=shape.lm_head(init.truncated_output(model.hidden_size)),
        layers=[_block(shape, layer) for layer in range(model.num_hidden_layers)],
    )


def _block(shape: Shape, layer: int) -> DeepSeekV3TransformerBlock.Config:
    model = shape.model
    routed = model.is_moe and layer >= model.first_k_dense_replace
    return DeepSeekV3TransformerBlock.Config(
        attention=_attention(shape, layer),
        attention_norm=shape.norm(model.hidden_size),
        ffn_norm=shape.norm(model.hidden_size),
        feed_forward=None if routed else _feed_forward(shape, layer, model.intermediate_size),
        moe=_experts(shape, layer) if routed else None,
    )


def _attention(shape: Shape, layer: int) -> Attention.Config:
    model = shape.model
    rope_width = cast(int, model.qk_rope_head_dim)
    config = make_mla_attention_config(
        layer_id=layer,
        dim=model.hidden_size,
        n_heads=model.num_attention_heads,
        q_lora_rank=model.q_lora_rank or 0,
        kv_lora_rank=cast(int, model.kv_lora_rank),
        qk_nope_head_dim=cast(int, model.qk_nope_head_dim),
        qk_rope_head_dim=rope_width,
        v_head_dim=cast(int, model.v_head_dim),
        # torchtitan multiplies the softmax scale by (0.1 * mscale * ln(factor) + 1)^2, which is yarn's term for
        # `mscale_all_dim`; the ratio to `mscale` sits in the rotary cache.
        mscale=model.rope_scaling.mscale_all_dim,
        attn_backend=shape.attention,
        linear_init=init.truncated(model.initializer_range),
        norm_init=init.ONES,
        depth_init=lambda layer_id: init.truncated_by_depth(model.initializer_range, layer_id),
        rope=rope_config(model, width=rope_width, seq_length=shape.seq_length, layout="pairs"),
    )
    # The helper above leaves both latent norms at its own epsilon.
    config.q_norm = replace(config.q_norm, eps=model.rms_norm_eps)
    config.kv_norm = replace(config.kv_norm, eps=model.rms_norm_eps)
    return cast(Attention.Config, config)


def _feed_forward(shape: Shape, layer: int, width: int) -> FeedForward.Config:
    std = shape.model.initializer_range
    return make_ffn_config(
        dim=shape.model.hidden_size,
        hidden_dim=width,
        w1_param_init=init.truncated(std),
        w2w3_param_init=init.truncated_by_depth(std, layer),
    )


def _experts(shape: Shape, layer: int) -> MoE.Config:
    model = shape.model
    width, experts = cast(int, model.moe_intermediate_size), cast(int, model.n_routed_experts)
    shared = model.n_shared_experts or 0
    return make_moe_config(
        num_experts=experts,
        load_balance_coeff=_BIAS_SPEED if model.architecture == "deepseek_v3" else None,
        router=_router(shape, layer),
        routed_experts=make_routed_experts_config(
            dim=model.hidden_size,
            hidden_dim=width,
            num_experts=experts,
            top_k=cast(int, model.num_experts_per_tok),
            param_init=init.experts_by_depth(model.initializer_range, layer),
            comm_backend="standard",
        ),
        shared_experts=_feed_forward(shape, layer, width * shared) if shared else None,
    )


def _router(shape: Shape, layer: int) -> TokenChoiceTopKRouter.Config:
    model = shape.model
    limited = (model.topk_group or 1) < (model.n_group or 1)
    config = make_router_config(
        dim=model.hidden_size,
        num_experts=cast(int, model.n_routed_experts),
        gate_param_init=init.truncated_by_depth(model.initializer_range, layer),
        top_k=cast(int, model.num_experts_per_tok),
        score_func=model.scoring_func,
        route_norm=model.norm_topk_prob,
        route_scale=model.routed_scaling_factor,
        num_expert_groups=model.n_group if limited else None,
        num_limited_groups=model.topk_group if limited else None,
    )
    single = limited and model.architecture == "deepseek_v2"
    if not single and not model.aux_loss_alpha:
        return config
    return BalancedRouter.Config(
        **{field.name: getattr(config, field.name) for field in fields(config)},
        group_experts=1 if single else 2,
        balance_weight=model.aux_loss_alpha / shape.global_batch_size if shape.global_batch_size else 0.0,
    )
