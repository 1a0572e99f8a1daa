"""Size of the model and floating point operations per trained token, counted from its configuration.

The formula is torchtitan's (`get_dense_model_nparams_and_flops`, `get_moe_model_nparams_and_flops`): six operations per
parameter that a token meets in a matrix product, experts counted by the part that a token visits, plus
6 x layers x heads x (width of query-key products + width of values) x sequence length for attention, whose causal
half is not taken off. Recomputation is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

from primus_hydra.backends.megatron.sections import ModelAndData


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """Parameters of the whole model, and floating point operations of forward and backward per token."""

    parameters: int
    flops_per_token: int


def size_of(config: ModelAndData, seq_length: int) -> ModelSize:
    """Count the model for sequences of `seq_length` tokens, whatever the layout over ranks."""
    transformer, model = config.transformer, config.model
    experts, active_experts = _experts(transformer)
    sparse_layers = _sparse_layers(transformer)
    dense_layers = transformer.num_layers - sparse_layers
    embedding = model.vocab_size * transformer.hidden_size
    tied = model.share_embeddings_and_output_weights
    shared = (
        embedding * (1 if tied else 2)
        + _norm(transformer, transformer.hidden_size)
        + transformer.num_layers * (2 * _norm(transformer, transformer.hidden_size) + _attention(transformer))
        + dense_layers * _mlp(transformer, transformer.ffn_hidden_size)
        + sparse_layers * _beside_experts(transformer)
    )
    # A tied embedding takes part in the output's matrix product, so only an untied one is left out.
    in_products = shared - (0 if tied else embedding) + sparse_layers * active_experts
    attention = 6 * transformer.num_layers * transformer.num_attention_heads * _head_widths(transformer) * seq_length
    return ModelSize(
        parameters=shared + sparse_layers * experts,
        flops_per_token=6 * in_products + attention,
    )


def _sparse_layers(transformer: TransformerConfig) -> int:
    every: int | list[int] = transformer.moe_layer_freq
    if transformer.num_moe_experts is None:
        return 0
    if isinstance(every, int):
        return len(range(0, transformer.num_layers, every))
    return sum(every)


def _experts(transformer: TransformerConfig) -> tuple[int, int]:
    """Return the parameters of one layer's routed experts, and the part of them that a token visits."""
    count = transformer.num_moe_experts
    if count is None:
        return 0, 0
    parameters = count * _mlp(transformer, transformer.moe_ffn_hidden_size or transformer.ffn_hidden_size)
    return parameters, parameters * transformer.moe_router_topk // count


def _beside_experts(transformer: TransformerConfig) -> int:
    """Return the parameters of a sparse layer's router and shared experts."""
    shared = transformer.moe_shared_expert_intermediate_size
    router = transformer.hidden_size * (transformer.num_moe_experts or 0)
    return int(router + (_mlp(transformer, shared) if shared else 0))


def _mlp(transformer: TransformerConfig, width: int) -> int:
    inputs = width * (2 if transformer.gated_linear_unit else 1)
    biases = inputs + transformer.hidden_size if transformer.add_bias_linear else 0
    return int(transformer.hidden_size * (inputs + width) + biases)


def _norm(transformer: TransformerConfig, width: int) -> int:
    return width * (2 if transformer.normalization == "LayerNorm" else 1)


def _head_widths(transformer: TransformerConfig) -> int:
    if isinstance(transformer, MLATransformerConfig):
        return int(transformer.qk_head_dim + transformer.qk_pos_emb_head_dim + transformer.v_head_dim)
    return int(2 * transformer.kv_channels)


def _attention(transformer: TransformerConfig) -> int:
    if isinstance(transformer, MLATransformerConfig):
        return _latent_attention(transformer)
    hidden, width = transformer.hidden_size, transformer.kv_channels
    queries, keys = transformer.num_attention_heads * width, (transformer.num_query_groups or 0) * width
    biases = queries + 2 * keys if transformer.add_qkv_bias or transformer.add_bias_linear else 0
    biases += hidden if transformer.add_bias_linear else 0
    norms = 2 * _norm(transformer, width) if transformer.qk_layernorm else 0
    return int(hidden * (2 * queries + 2 * keys) + biases + norms)


def _latent_attention(transformer: MLATransformerConfig) -> int:
    hidden, heads = transformer.hidden_size, transformer.num_attention_heads
    rope, values = transformer.qk_pos_emb_head_dim, heads * transformer.v_head_dim
    queries = heads * (transformer.qk_head_dim + rope)
    rank, latent = transformer.q_lora_rank, transformer.kv_lora_rank
    into_queries = hidden * queries if rank is None else rank * (hidden + queries)
    into_keys = hidden * (latent + rope) + latent * (heads * transformer.qk_head_dim + values)
    norms = _norm(transformer, (rank or 0) + latent) if transformer.qk_layernorm else 0
    return int(into_queries + into_keys + values * hidden + norms)
