"""The tensors of a model in Hugging Face's names: which there are, and their shapes.

Knows the families `llama` and `qwen3`. Linear weights are [out, in], as torch keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from primus_hydra.config.schema.model import ModelConfig

Shape = tuple[int, ...]

FAMILIES: Final[Mapping[str, str]] = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""Architectures whose Hugging Face form is known, and the name of their class in `transformers`."""
EMBEDDING: Final = "model.embed_tokens.weight"
FINAL_NORM: Final = "model.norm.weight"
OUTPUT: Final = "lm_head.weight"


def expected_tensors(model: ModelConfig, vocab_size: int) -> dict[str, Shape]:
    """Return name and shape of every tensor, embedding first and output last, layers in order.

    A tied output is no tensor of its own. Raises KeyError for a family that is not known.
    """
    FAMILIES[model.architecture]
    hidden = model.hidden_size
    tensors: dict[str, Shape] = {EMBEDDING: (vocab_size, hidden)}
    for layer in range(model.num_hidden_layers):
        tensors |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer(model).items()}
    tensors[FINAL_NORM] = (hidden,)
    if not model.tie_word_embeddings:
        tensors[OUTPUT] = (vocab_size, hidden)
    return tensors


def may_be_ignored(name: str, model: ModelConfig) -> bool:
    """Whether a folder may hold a tensor beside those of the model, as older ones do: `transformers` reads past it."""
    return name.endswith("rotary_emb.inv_freq") or (name == OUTPUT and model.tie_word_embeddings)


def layer_of(name: str) -> int | None:
    """Return the number of the layer that a tensor belongs to, or None."""
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else None


def unknown_form(model: ModelConfig) -> str | None:
    """Say why a model's Hugging Face form is not known, or return None."""
    if model.architecture not in FAMILIES:
        return f"Hugging Face weights are read and written for {' and '.join(FAMILIES)}, not for {model.architecture}"
    if model.attention_bias:
        return "Hugging Face weights are read and written without biases of the attention (model.attention_bias=true)"
    return None


def _layer(model: ModelConfig) -> dict[str, Shape]:
    hidden, ffn, width = model.hidden_size, model.intermediate_size, model.head_width
    queries, keys = model.num_attention_heads * width, model.kv_heads * width
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }
    if model.architecture == "qwen3":
        shapes |= {"self_attn.q_norm.weight": (width,), "self_attn.k_norm.weight": (width,)}
    return shapes
