"""The dense Qwen3 family: Llama's layout with normalised queries and keys and a head width of its own."""

from __future__ import annotations

from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
from torchtitan.models.qwen3.model import Qwen3Model, Qwen3TransformerBlock

from primus_hydra.backends.torchtitan.models import initializers as init
from primus_hydra.backends.torchtitan.models.rope import rope_config
from primus_hydra.backends.torchtitan.models.shape import Shape


def qwen3_config(shape: Shape) -> Qwen3Model.Config:
    """Return torchtitan's configuration of a dense Qwen3 of any size."""
    model = shape.model
    plain = init.normal(model.initializer_range)
    return Qwen3Model.Config(
        dim=model.hidden_size,
        vocab_size=shape.vocab_size,
        enable_weight_tying=model.tie_word_embeddings,
        tok_embeddings=shape.embedding({"weight": plain["weight"]}),
        norm=shape.norm(model.hidden_size),
        lm_head=shape.lm_head(plain),
        layers=[_block(shape) for _ in range(model.num_hidden_layers)],
    )


def _block(shape: Shape) -> Qwen3TransformerBlock.Config:
    model = shape.model
    plain = init.normal(model.initializer_range)
    return Qwen3TransformerBlock.Config(
        attention_norm=shape.norm(model.hidden_size),
        ffn_norm=shape.norm(model.hidden_size),
        attention=make_gqa_config(
            dim=model.hidden_size,
            n_heads=model.num_attention_heads,
            n_kv_heads=model.kv_heads,
            head_dim=model.head_width,
            wqkv_param_init=plain,
            wo_param_init=plain,
            inner_attention=shape.inner_attention(),
            fuse_qkv=True,
            rope=rope_config(model, width=model.head_width, seq_length=shape.seq_length, layout="halves"),
            qk_norm=shape.norm(model.head_width),
        ),
        feed_forward=make_ffn_config(
            dim=model.hidden_size, hidden_dim=model.intermediate_size, w1_param_init=plain, w2w3_param_init=plain
        ),
    )
