"""What of a model decides the shapes of its weights: recorded with each checkpoint, compared before one is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from primus_hydra.config.schema import ModelConfig

_FIELDS: Final = (
    "architecture",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "tie_word_embeddings",
    "attention_bias",
    "n_routed_experts",
    "n_shared_experts",
    "moe_intermediate_size",
    "first_k_dense_replace",
    "interleave_moe_layer_step",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)


def shape_of(model: ModelConfig, vocab_size: int | None) -> dict[str, object]:
    """Return what decides the shapes of the weights; `vocab_size` counts where the model leaves its own open."""
    return {
        **{name: getattr(model, name) for name in _FIELDS},
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_width,
        "vocab_size": model.vocab_size or vocab_size,
    }


def differences(saved: Mapping[str, object], wanted: Mapping[str, object]) -> list[str]:
    """Return, in words, the fields in which two shapes differ; what one of them does not know is no difference.

    A vocabulary that is not known yet is None, as is a part that the model lacks: only there None is no difference.
    """
    open_fields = {"vocab_size"}
    return [
        f"model.{name} is {saved[name]} there and {value} here"
        for name, value in wanted.items()
        if name in saved and saved[name] != value and not (name in open_fields and None in (saved[name], value))
    ]
