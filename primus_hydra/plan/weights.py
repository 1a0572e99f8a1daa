"""The weights of a model as matrices, and how many numbers of each one rank holds. Pure arithmetic.

A shape and the dimension that tensor parallel ranks cut say all that sharding needs to know. The sum over all weights
is what `config.count` counts. Which weights are cut is the backends' doing:

- columns and rows of attention and feed-forward, rows of embedding and output: Shoeybi et al. 2019 (Megatron-LM), 3
- latent projections are whole on every rank, except in Megatron's local layers (its `get_gpt_layer_local_spec`)
- experts are spread over `ep` ranks; inside an expert `etp` (Megatron), or `tp` where ep is 1 (torchtitan)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from primus_hydra.config.schema.model import ModelConfig

LATENT = ("deepseek_v2", "deepseek_v3")


@dataclass(frozen=True)
class Weight:
    """One parameter. `cut` is the dimension that tensor parallel ranks share, None where every rank has all of it.

    `product` says whether tokens are multiplied with it; `experts` whether its first dimension counts routed experts.
    """

    name: str
    shape: tuple[int, ...]
    cut: int | None = None
    product: bool = True
    experts: bool = False

    @property
    def size(self) -> int:
        """Numbers in the whole parameter."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Cut:
    """How weights are divided before data parallelism: `tp` for most, `ep` and `etp` for routed experts."""

    tp: int = 1
    ep: int = 1
    etp: int = 1

    def local(self, weight: Weight) -> tuple[int, ...]:
        """Return the shape of the part that one rank holds."""
        shape = list(weight.shape)
        if weight.experts:
            shape[0] //= self.ep
        if weight.cut is not None:
            shape[weight.cut] //= self.etp if weight.experts else self.tp
        return tuple(shape)


@lru_cache(maxsize=64)
def layer_weights(model: ModelConfig, sparse: bool, *, local_latent: bool = False) -> tuple[Weight, ...]:
    """Return the weights of one layer, in the order in which Megatron makes them; `sparse` layers route to experts."""
    hidden = model.hidden_size
    norms = (Weight("attention_norm", (hidden,), product=False), Weight("ffn_norm", (hidden,), product=False))
    attention = _latent(model, local_latent) if model.architecture in LATENT else _grouped(model)
    feed_forward = _sparse(model) if sparse else _gated(model, model.intermediate_size, "mlp")
    return (norms[0], *attention, norms[1], *feed_forward)


def embedding(model: ModelConfig, vocab: int) -> Weight:
    """Return the input embedding, which looks rows up and multiplies nothing."""
    return Weight("embedding", (vocab, model.hidden_size), 0, product=False)


def final_norm(model: ModelConfig) -> Weight:
    """Return the norm before the output projection."""
    return Weight("final_norm", (model.hidden_size,), product=False)


def output(model: ModelConfig, vocab: int) -> Weight:
    """Return the output projection."""
    return Weight("output", (vocab, model.hidden_size), 0)


def model_total(model: ModelConfig, vocab: int) -> int:
    """Return all parameters; a tied output projection counts once."""
    ends = [embedding(model, vocab), final_norm(model)]
    if not model.tie_word_embeddings:
        ends.append(output(model, vocab))
    sparse = model.moe_layers
    layers = [(False, model.num_hidden_layers - sparse), (True, sparse)]
    body = sum(count * sum(w.size for w in layer_weights(model, kind)) for kind, count in layers if count)
    return sum(weight.size for weight in ends) + body


def _grouped(model: ModelConfig) -> tuple[Weight, ...]:
    hidden, width = model.hidden_size, model.head_width
    queries, keys = model.num_attention_heads * width, model.kv_heads * width
    packed = queries + 2 * keys
    weights = [Weight("attention_out", (hidden, queries), 1), Weight("qkv", (packed, hidden), 0)]
    if model.qkv_bias:
        weights.append(Weight("qkv_bias", (packed,), 0, product=False))
    if model.attention_bias:
        weights.append(Weight("attention_out_bias", (hidden,), product=False))
    if model.architecture == "gpt_oss":
        weights.append(Weight("sinks", (model.num_attention_heads,), 0, product=False))
    if model.architecture.startswith("qwen3"):
        weights += [Weight("query_norm", (width,), product=False), Weight("key_norm", (width,), product=False)]
    return tuple(weights)


def _latent(model: ModelConfig, cut_down: bool) -> tuple[Weight, ...]:
    hidden, heads = model.hidden_size, model.num_attention_heads
    rank, rope = model.kv_lora_rank or 0, model.qk_rope_head_dim or 0
    nope, value = model.qk_nope_head_dim or 0, model.v_head_dim or 0
    down = 0 if cut_down else None
    queries, query_rank = heads * (nope + rope), model.q_lora_rank
    weights = [Weight("attention_out", (hidden, heads * value), 1)]
    if query_rank is None:
        weights.append(Weight("queries", (queries, hidden), 0))
    else:
        weights += [
            Weight("queries_down", (query_rank, hidden), down),
            Weight("queries_from_latent", (queries, query_rank), 0),
            Weight("query_norm", (query_rank,), product=False),
        ]
    weights += [
        Weight("keys_down", (rank + rope, hidden), down),
        Weight("keys_from_latent", (heads * (nope + value), rank), 0),
        Weight("key_norm", (rank,), product=False),
    ]
    if model.attention_bias:
        biases = {"keys_down_bias": rank + rope, "attention_out_bias": hidden}
        biases |= {} if query_rank is None else {"queries_down_bias": query_rank}
        weights += [Weight(name, (width,), product=False) for name, width in biases.items()]
    return tuple(weights)


def _gated(model: ModelConfig, width: int, name: str) -> tuple[Weight, ...]:
    hidden = model.hidden_size
    return (
        Weight(f"{name}_gate", (width, hidden), 0),
        Weight(f"{name}_up", (width, hidden), 0),
        Weight(f"{name}_down", (hidden, width), 1),
    )


def _sparse(model: ModelConfig) -> tuple[Weight, ...]:
    hidden, count, width = model.hidden_size, model.n_routed_experts or 0, model.expert_width
    weights = [
        Weight("router", (count, hidden)),
        Weight("experts_gate", (count, width, hidden), 1, experts=True),
        Weight("experts_up", (count, width, hidden), 1, experts=True),
        Weight("experts_down", (count, hidden, width), 2, experts=True),
    ]
    if model.architecture == "gpt_oss":
        weights += [
            Weight("router_bias", (count,), product=False),
            Weight("experts_in_bias", (count, 2 * width), 1, product=False, experts=True),
            Weight("experts_out_bias", (count, hidden), product=False, experts=True),
        ]
    if model.n_shared_experts:
        weights += _gated(model, model.n_shared_experts * width, "shared")
    return tuple(weights)
