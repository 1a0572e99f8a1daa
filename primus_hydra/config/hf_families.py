"""The families of models in Hugging Face's words: which field of config.json is which neutral key.

Where a file leaves a field out, the default of its class in `transformers` (5.24) counts. Fields in which no neutral
model can differ stand with the one value that they may have. Pure data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from primus_hydra.config.schema.model import Architecture

NEEDED: Final = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
"""Fields without which a file does not describe a model; for the others a class has a default that is meant."""


@dataclass(frozen=True, kw_only=True)
class HfFamily:
    """One class of `transformers`.

    `names`: field of config.json to neutral key; `defaults`: value of a field that is left out; `fixed`: what other
    fields must be, if they are there. A size that defaults to another one is not among the defaults.
    """

    class_name: str
    names: Mapping[str, str]
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_SHARED: Final = _same(
    *NEEDED,
    *("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "initializer_range"),
)
_DEFAULTS: Final[Mapping[str, Any]] = {
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
}
_BIAS: Final = {"attention_bias": False}
_PLAIN: Final[Mapping[str, Any]] = {"hidden_act": "silu", "attention_dropout": 0.0}
_NO_WINDOW: Final = {"use_sliding_window": False}
_LOCAL: Final = {"num_local_experts": "n_routed_experts", **_same("num_experts_per_tok")}
_LATENT: Final = _same(
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    *("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace"),
    *("norm_topk_prob", "routed_scaling_factor", "n_group", "topk_group", "attention_bias"),
)
_LATENT_SIZES: Final[Mapping[str, Any]] = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "attention_bias": False,
}

SPELLINGS: Final[Mapping[str, str]] = {"num_experts": "num_local_experts", "num_local_experts": "num_experts"}
"""Another name of a field: `transformers` 5 writes Qwen3-MoE's experts under the second, and takes either in all."""
HF_FAMILIES: Final[Mapping[Architecture, HfFamily]] = {
    "llama": HfFamily(
        class_name="LlamaForCausalLM",
        names={**_SHARED, **_same("head_dim", "attention_bias")},
        defaults={**_DEFAULTS, **_BIAS, "max_position_embeddings": 2048},
        fixed={**_PLAIN, "mlp_bias": False},
    ),
    "qwen2": HfFamily(
        class_name="Qwen2ForCausalLM",
        names={**_SHARED, **_same("head_dim")},
        defaults={**_DEFAULTS, "max_position_embeddings": 32768, "num_key_value_heads": 32},
        fixed={**_PLAIN, **_NO_WINDOW},
    ),
    "qwen3": HfFamily(
        class_name="Qwen3ForCausalLM",
        names={**_SHARED, **_same("head_dim", "attention_bias")},
        defaults={
            **_DEFAULTS,
            **_BIAS,
            "head_dim": 128,
            "max_position_embeddings": 32768,
            "num_key_value_heads": 32,
        },
        fixed={**_PLAIN, **_NO_WINDOW},
    ),
    "qwen3_moe": HfFamily(
        class_name="Qwen3MoeForCausalLM",
        names={
            **_SHARED,
            **_same("head_dim", "attention_bias", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"),
            "num_experts": "n_routed_experts",
            "decoder_sparse_step": "interleave_moe_layer_step",
        },
        defaults={
            **_DEFAULTS,
            **_BIAS,
            "max_position_embeddings": 32768,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "norm_topk_prob": False,
            "decoder_sparse_step": 1,
        },
        fixed={**_PLAIN, **_NO_WINDOW},
    ),
    "mixtral": HfFamily(
        class_name="MixtralForCausalLM",
        names={**_SHARED, **_LOCAL, **_same("head_dim", "sliding_window")},
        defaults={
            **_DEFAULTS,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        fixed={**_PLAIN, "router_jitter_noise": 0.0},
    ),
    "deepseek_v2": HfFamily(
        class_name="DeepseekV2ForCausalLM",
        names={**_SHARED, **_LATENT, **_same("aux_loss_alpha")},
        defaults={
            **_DEFAULTS,
            **_LATENT_SIZES,
            "max_position_embeddings": 2048,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "moe_intermediate_size": 1407,
            "first_k_dense_replace": 0,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.0,
            "aux_loss_alpha": 0.0,
        },
        fixed={**_PLAIN, "mlp_bias": False, "moe_layer_freq": 1, "scoring_func": "softmax", "seq_aux": True},
    ),
    "deepseek_v3": HfFamily(
        class_name="DeepseekV3ForCausalLM",
        names={**_SHARED, **_LATENT},
        defaults={
            **_DEFAULTS,
            **_LATENT_SIZES,
            "max_position_embeddings": 4096,
            "num_key_value_heads": 128,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 2048,
            "first_k_dense_replace": 3,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "n_group": 8,
            "topk_group": 4,
        },
        fixed={
            **_PLAIN,
            "moe_layer_freq": 1,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "rope_interleave": True,
        },
    ),
    "gpt_oss": HfFamily(
        class_name="GptOssForCausalLM",
        names={**_SHARED, **_LOCAL, **_same("head_dim", "attention_bias", "sliding_window", "swiglu_limit")},
        defaults={
            **_DEFAULTS,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "attention_bias": True,
            "sliding_window": 128,
            "swiglu_limit": 7.0,
        },
        fixed={**_PLAIN, "swiglu_alpha": 1.702},
    ),
    "llama4_text": HfFamily(
        class_name="Llama4ForCausalLM",
        names={
            **{name: key for name, key in _SHARED.items() if name != "intermediate_size"},
            **_LOCAL,
            **_same("head_dim", "attention_bias", "interleave_moe_layer_step", "attention_chunk_size", "use_qk_norm"),
            **_same("no_rope_layer_interval", "attn_temperature_tuning", "floor_scale", "attn_scale"),
            "intermediate_size_mlp": "intermediate_size",
            "intermediate_size": "moe_intermediate_size",
        },
        defaults={
            **_DEFAULTS,
            **_BIAS,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size_mlp": 16384,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1,
            "attention_chunk_size": 8192,
            "no_rope_layer_interval": 4,
            "use_qk_norm": True,
            "attn_temperature_tuning": True,
            "floor_scale": 8192,
            "attn_scale": 0.1,
        },
        fixed={**_PLAIN, "router_jitter_noise": 0.0},
    ),
}
"""Architectures of config.json (`model_type`) that a neutral model can have."""

WITHOUT_EFFECT: Final = frozenset(
    {
        *("_name_or_path", "architectures", "auto_map", "dtype", "model_type", "torch_dtype", "transformers_version"),
        *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id"),
        *("chunk_size_feed_forward", "id2label", "label2id", "is_encoder_decoder", "is_decoder", "problem_type"),
        *("output_attentions", "output_hidden_states", "output_router_logits", "return_dict", "use_cache"),
        *("router_aux_loss_coef", "pretraining_tp", "ep_size", "max_window_layers", "cache_implementation"),
        # The layer for a second token is no part of the model that `transformers` builds.
        *("num_nextn_predict_layers", "num_mtp_layers", "experts_per_token", "initial_context_length"),
        *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "_attn_implementation"),
        *("_attn_implementation_autoset", "for_llm_compressor", "_experts_implementation", "qk_head_dim"),
    }
)
"""Fields that decide no weight and no output, or that are read by name elsewhere."""
