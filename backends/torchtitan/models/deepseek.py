"""The DeepSeek-V2 and V3 families: latent attention, and routed experts after the first dense layers."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from torchtitan.models.common import FeedForward
from torchtitan.models.common.config_utils import make_ffn_config
from torchtitan.models.common.moe import MoE
from torchtitan.models.deepseek_v3 import make_mla_attention_config
from torchtitan.models.deepseek_v3.model import Attention, DeepSeekV3Model, DeepSeekV3TransformerBlock

from primus_hydra.backends.torchtitan.models import initializers as init
from primus_hydra.backends.torchtitan.models.experts import FirstWeights, mixture
from primus_hydra.backends.torchtitan.models.rope import rope_config
from primus_hydra.backends.torchtitan.models.shape import Shape


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
    routed = model.routes(layer)
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
    model, std = shape.model, shape.model.initializer_range
    weights = FirstWeights(gate=init.truncated_by_depth(std, layer), experts=init.experts_by_depth(std, layer))
    width = model.expert_width * (model.n_shared_experts or 0)
    return mixture(shape, weights, shared=_feed_forward(shape, layer, width) if width else None)
