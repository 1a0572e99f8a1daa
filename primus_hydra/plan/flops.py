"""Floating point operations of each part of a model, exactly, per token.

A product with a matrix costs two operations per weight and token in the forward, and twice that in the backward. Scores
and their product with the values cost two operations per pair of tokens and number of a head each. Causal attention
computes pairs of a token with itself and those before it: (length + 1) / 2 per token on average; that is what is
counted here. (Megatron's and torchtitan's own figures count all pairs, which makes their rates higher by what causal
attention never computes: see `ModelFlops.all_pairs`.) Recomputation is no work of the model, and counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.plan.weights import LATENT, layer_weights


@dataclass(frozen=True, kw_only=True)
class ModelFlops:
    """Operations of a forward per token: dense products, experts, attention's scores and values, and the output."""

    products: float
    experts: float
    attention: float
    output: float
    attention_all_pairs: float

    @property
    def trained(self) -> float:
        """Forward and backward of one token, causal attention counted by its pairs."""
        return 3 * (self.products + self.experts + self.attention + self.output)

    @property
    def all_pairs(self) -> float:
        """The same with every pair of tokens counted, as torchtitan's and Megatron's logs do."""
        return 3 * (self.products + self.experts + self.attention_all_pairs + self.output)


def model_flops(model: ModelConfig, vocab: int, length: int) -> ModelFlops:
    """Return the operations of one token in sequences of `length` tokens."""
    sparse = model.moe_layers
    kinds = ((False, model.num_hidden_layers - sparse), (True, sparse))
    counted = [(layer_flops(model, kind), count) for kind, count in kinds if count]
    layers = model.num_hidden_layers
    return ModelFlops(
        products=sum(layer.products * count for layer, count in counted),
        experts=sum(layer.experts * count for layer, count in counted),
        attention=layers * pair_flops(model) * _pairs(model, length),
        output=2.0 * vocab * model.hidden_size,
        attention_all_pairs=layers * pair_flops(model) * length,
    )


@dataclass(frozen=True)
class LayerFlops:
    """Operations of one layer's forward per token, without attention's pairs."""

    products: float
    experts: float


@lru_cache(maxsize=64)
def layer_flops(model: ModelConfig, sparse: bool) -> LayerFlops:
    """Return the operations of a layer's matrix products; a token meets `num_experts_per_tok` routed experts."""
    weights = layer_weights(model, sparse)
    dense = sum(weight.size for weight in weights if weight.product and not weight.experts)
    routed = sum(weight.size for weight in weights if weight.product and weight.experts)
    met = routed * (model.num_experts_per_tok or 0) / (model.n_routed_experts or 1)
    return LayerFlops(2.0 * dense, 2.0 * met)


def pair_flops(model: ModelConfig) -> float:
    """Return the operations per pair of tokens in one layer: scores, and their product with the values."""
    if model.architecture in LATENT:
        query = (model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0)
        return 2.0 * model.num_attention_heads * (query + (model.v_head_dim or 0))
    return 4.0 * model.num_attention_heads * model.head_width


def _pairs(model: ModelConfig, length: int) -> float:
    """Return the pairs per token and layer; some layers look back over a window or a chunk only."""
    whole = causal_pairs(length)
    if model.sliding_window is not None and model.sliding_window < length:
        seen = causal_pairs(length, model.sliding_window)
        return (seen + whole) / 2 if model.architecture == "gpt_oss" else seen
    return whole


def causal_pairs(length: int, window: int | None = None) -> float:
    """Return the mean number of tokens that a token sees: itself and those before it, `window` at most."""
    if window is None or window >= length:
        return (length + 1) / 2
    return (window * (window + 1) / 2 + (length - window) * window) / length
