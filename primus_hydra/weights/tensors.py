"""The tensors of a model in Hugging Face's names, as they lie on disk: which there are, and their shapes.

Linear weights are [out, in], as torch keeps them; each expert has matrices of its own, also where `transformers` keeps
them stacked in memory. `FAMILIES` are those that are known; others are refused by `unknown_form`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from primus_hydra.config.families import LATENT
from primus_hydra.config.schema.model import Architecture, ModelConfig

Shape = tuple[int, ...]

FAMILIES: Final[tuple[Architecture, ...]] = ("llama", "qwen2", "qwen3", "qwen3_moe", "mixtral", *LATENT)
"""Architectures whose Hugging Face form is known."""
EMBEDDING: Final = "model.embed_tokens.weight"
FINAL_NORM: Final = "model.norm.weight"
OUTPUT: Final = "lm_head.weight"
ROUTER_BIAS: Final = "mlp.gate.e_score_correction_bias"
"""Of a layer: the bias by which DeepSeek-V3 balances its experts; float32 in every folder."""


@dataclass(frozen=True, kw_only=True)
class ExpertNames:
    """Names within a layer: of the router, of what stands before an expert's number, and of an expert's matrices."""

    router: str
    prefix: str
    gate: str
    up: str
    down: str

    def matrix(self, expert: int, which: str) -> str:
        """Return the name of an expert's `gate`, `up` or `down` matrix."""
        return f"{self.prefix}.{expert}.{getattr(self, which)}.weight"


_PUBLISHED: Final = ExpertNames(
    router="mlp.gate.weight", prefix="mlp.experts", gate="gate_proj", up="up_proj", down="down_proj"
)
_MIXTRAL: Final = ExpertNames(
    router="block_sparse_moe.gate.weight", prefix="block_sparse_moe.experts", gate="w1", up="w3", down="w2"
)


def expert_names(model: ModelConfig) -> ExpertNames:
    """Return how the family of a model names its experts."""
    return _MIXTRAL if model.architecture == "mixtral" else _PUBLISHED


def expected_tensors(model: ModelConfig, vocab_size: int) -> dict[str, Shape]:
    """Return name and shape of every tensor, embedding first and output last, layers in order.

    A tied output is no tensor of its own. Raises KeyError for a family that is not known.
    """
    if model.architecture not in FAMILIES:
        raise KeyError(model.architecture)
    hidden = model.hidden_size
    tensors: dict[str, Shape] = {EMBEDDING: (vocab_size, hidden)}
    for layer in range(model.num_hidden_layers):
        tensors |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer(model, layer).items()}
    tensors[FINAL_NORM] = (hidden,)
    if not model.tie_word_embeddings:
        tensors[OUTPUT] = (vocab_size, hidden)
    return tensors


def may_be_ignored(name: str, model: ModelConfig) -> bool:
    """Whether a folder may hold a tensor beside those of the model, as some do: `transformers` reads past it.

    Those are rotary frequencies, a tied output, and the layer with which DeepSeek-V3 guesses a second token.
    """
    second_token = model.architecture == "deepseek_v3" and layer_of(name) == model.num_hidden_layers
    return name.endswith("rotary_emb.inv_freq") or (name == OUTPUT and model.tie_word_embeddings) or second_token


def stays_float32(name: str) -> bool:
    """Whether a tensor is written in float32, whatever the number format of the others."""
    return name.endswith(ROUTER_BIAS)


def layer_of(name: str) -> int | None:
    """Return the number of the layer that a tensor belongs to, or None."""
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else None


def unknown_form(model: ModelConfig) -> str | None:
    """Say why a model's Hugging Face form is not known, or return None."""
    if model.architecture not in FAMILIES:
        known = f"{', '.join(FAMILIES[:-1])} and {FAMILIES[-1]}"
        return f"Hugging Face weights are read and written for {known}, not for {model.architecture}"
    if model.attention_bias:
        return "Hugging Face weights are read and written without biases of the attention (model.attention_bias=true)"
    return None


def _layer(model: ModelConfig, layer: int) -> dict[str, Shape]:
    attention = _latent_attention(model) if model.architecture in LATENT else _grouped_attention(model)
    hidden = (model.hidden_size,)
    return {
        "input_layernorm.weight": hidden,
        **{f"self_attn.{name}": shape for name, shape in attention.items()},
        "post_attention_layernorm.weight": hidden,
        **(_experts(model) if model.routes(layer) else _gated(model, "mlp", model.intermediate_size)),
    }


def _grouped_attention(model: ModelConfig) -> dict[str, Shape]:
    hidden, width = model.hidden_size, model.head_width
    heights = {"q": model.num_attention_heads * width, "k": model.kv_heads * width, "v": model.kv_heads * width}
    shapes: dict[str, Shape] = {f"{name}_proj.weight": (height, hidden) for name, height in heights.items()}
    if model.qkv_bias:
        shapes |= {f"{name}_proj.bias": (height,) for name, height in heights.items()}
    shapes["o_proj.weight"] = (hidden, heights["q"])
    if model.architecture in ("qwen3", "qwen3_moe"):
        shapes |= {"q_norm.weight": (width,), "k_norm.weight": (width,)}
    return shapes


def _latent_attention(model: ModelConfig) -> dict[str, Shape]:
    hidden, heads, rank = model.hidden_size, model.num_attention_heads, model.kv_lora_rank or 0
    plain, turned, value = model.qk_nope_head_dim or 0, model.qk_rope_head_dim or 0, model.v_head_dim or 0
    return {
        **_latent_queries(model, heads * (plain + turned)),
        "kv_a_proj_with_mqa.weight": (rank + turned, hidden),
        "kv_a_layernorm.weight": (rank,),
        "kv_b_proj.weight": (heads * (plain + value), rank),
        "o_proj.weight": (hidden, heads * value),
    }


def _latent_queries(model: ModelConfig, height: int) -> dict[str, Shape]:
    rank = model.q_lora_rank
    if rank is None:
        return {"q_proj.weight": (height, model.hidden_size)}
    return {
        "q_a_proj.weight": (rank, model.hidden_size),
        "q_a_layernorm.weight": (rank,),
        "q_b_proj.weight": (height, rank),
    }


def _experts(model: ModelConfig) -> dict[str, Shape]:
    names, count, hidden, width = (
        expert_names(model),
        model.n_routed_experts or 0,
        model.hidden_size,
        model.expert_width,
    )
    shapes: dict[str, Shape] = {names.router: (count, hidden)}
    if model.architecture == "deepseek_v3":
        shapes[ROUTER_BIAS] = (count,)
    for expert in range(count):
        shapes |= {names.matrix(expert, which): (width, hidden) for which in ("gate", "up")}
        shapes[names.matrix(expert, "down")] = (hidden, width)
    if model.n_shared_experts:
        shapes |= _gated(model, "mlp.shared_experts", model.n_shared_experts * width)
    return shapes


def _gated(model: ModelConfig, prefix: str, width: int) -> Mapping[str, Shape]:
    hidden = model.hidden_size
    return {
        f"{prefix}.gate_proj.weight": (width, hidden),
        f"{prefix}.up_proj.weight": (width, hidden),
        f"{prefix}.down_proj.weight": (hidden, width),
    }
