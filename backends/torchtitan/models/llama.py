"""The Llama family: grouped-query attention, gated feed-forward, optionally tied embeddings."""

from __future__ import annotations

from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
from torchtitan.models.llama3.model import Llama3Model, Llama3TransformerBlock

from primus_hydra.backends.torchtitan.models import initializers as init
from primus_hydra.backends.torchtitan.models.rope import rope_config
from primus_hydra.backends.torchtitan.models.shape import Shape


def llama_config(shape: Shape) -> Llama3Model.Config:
    """Return torchtitan's configuration of a Llama of any size."""
    model = shape.model
    return Llama3Model.Config(
        dim=model.hidden_size,
        vocab_size=shape.vocab_size,
        enable_weight_tying=model.tie_word_embeddings,
        tok_embeddings=shape.embedding(init.UNIT_NORMAL),
        norm=shape.norm(model.hidden_size),
        lm_head=shape.lm_head(init.truncated_output(model.hidden_size)),
        layers=[_block(shape, layer) for layer in range(model.num_hidden_layers)],
    )


def _block(shape: Shape, layer: int) -> Llama3TransformerBlock.Config:
    model = shape.model
    plain = init.truncated(model.initializer_range)
    deep = init.truncated_by_depth(model.initializer_range, layer)
    return Llama3TransformerBlock.Config(
        attention_norm=shape.norm(model.hidden_size),
        ffn_norm=shape.norm(model.hidden_size),
        attention=make_gqa_config(
            dim=model.hidden_size,
            n_heads=model.num_attention_heads,
            n_kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            wqkv_param_init=plain,
            wo_param_init=deep,
            inner_attention=shape.inner_attention(),
            fuse_qkv=True,
            rope=rope_config(model, width=model.head_width, seq_length=shape.seq_length, layout="pairs"),
        ),
        feed_forward=make_ffn_config(
            dim=model.hidden_size, hidden_dim=model.intermediate_size, w1_param_init=plain, w2w3_param_init=deep
        ),
    )
