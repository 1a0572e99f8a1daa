"""Families on torchtitan's Qwen3 block: Qwen2, Qwen3, its mixture of experts, and Mixtral.

They differ from each other in what surrounds one layout: biases in queries, keys and values (Qwen2), norms of queries
and keys (Qwen3), experts in the place of the feed-forward layer.
"""

from __future__ import annotations

from dataclasses import replace

from torchtitan.models.common.attention import GQAttention
from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
from torchtitan.models.qwen3.model import Qwen3Model, Qwen3TransformerBlock

from primus_hydra.backends.torchtitan.models import initializers as init
from primus_hydra.backends.torchtitan.models.experts import FirstWeights, mixture
from primus_hydra.backends.torchtitan.models.rope import rope_config
from primus_hydra.backends.torchtitan.models.shape import Shape

_NORMED = ("qwen3", "qwen3_moe")


def qwen3_config(shape: Shape) -> Qwen3Model.Config:
    """Return torchtitan's configuration of a model of one of these families, of any size."""
    model = shape.model
    plain = init.normal(model.initializer_range)
    return Qwen3Model.Config(
        dim=model.hidden_size,
        vocab_size=shape.vocab_size,
        enable_weight_tying=model.tie_word_embeddings,
        tok_embeddings=shape.embedding({"weight": plain["weight"]}),
        norm=shape.norm(model.hidden_size),
        lm_head=shape.lm_head(plain),
        layers=[_block(shape, layer) for layer in range(model.num_hidden_layers)],
    )


def _block(shape: Shape, layer: int) -> Qwen3TransformerBlock.Config:
    model = shape.model
    plain = init.normal(model.initializer_range)
    routed = model.routes(layer)
    return Qwen3TransformerBlock.Config(
        attention_norm=shape.norm(model.hidden_size),
        ffn_norm=shape.norm(model.hidden_size),
        attention=_attention(shape),
        feed_forward=None
        if routed
        else make_ffn_config(
            dim=model.hidden_size, hidden_dim=model.intermediate_size, w1_param_init=plain, w2w3_param_init=plain
        ),
        moe=mixture(shape, _first_weights(shape)) if routed else None,
    )


def _attention(shape: Shape) -> GQAttention.Config:
    model = shape.model
    plain = init.normal(model.initializer_range)
    # torchtitan's recipe for a mixture: the ends of branches are smaller.
    deep = init.normal_by_layers(model.initializer_range, model.num_hidden_layers)
    config = make_gqa_config(
        dim=model.hidden_size,
        n_heads=model.num_attention_heads,
        n_kv_heads=model.kv_heads,
        head_dim=model.head_width,
        wqkv_param_init=plain,
        wo_param_init=deep if model.is_moe else plain,
        inner_attention=shape.inner_attention(),
        fuse_qkv=True,
        rope=rope_config(model, width=model.head_width, seq_length=shape.seq_length, layout="halves"),
        qk_norm=shape.norm(model.head_width) if model.architecture in _NORMED else None,
    )
    if model.qkv_bias:
        config.qkv_linear.wqkv = replace(config.qkv_linear.wqkv, bias=True)
    return config


def _first_weights(shape: Shape) -> FirstWeights:
    std, layers = shape.model.initializer_range, shape.model.num_hidden_layers
    return FirstWeights(gate=init.normal(std), experts=init.experts_by_layers(std, layers))
