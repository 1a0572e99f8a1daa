"""A neutral model as fields of Megatron's transformer configuration, and as arguments of its GPTModel.

Fresh weights are drawn as Megatron draws them, with `initializer_range` as the standard deviation: normal, in the two
projections that end a layer's branches smaller by sqrt(2 * layers). (torchtitan's recipes differ: see its models.)
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

from primus_hydra.backends.megatron.models.moe import expert_fields
from primus_hydra.backends.megatron.models.rope import (
    YarnTransformerConfig,
    latent_positions,
    model_positions,
    yarn_fields,
)
from primus_hydra.config.architecture import LATENT
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.config.schema.parallel import ParallelConfig


def model_fields(model: ModelConfig, parallel: ParallelConfig, *, engine: bool) -> tuple[type[Any], dict[str, Any]]:
    """Return the configuration class for `model`, and the fields of it that the model decides."""
    common = {**_shape(model), **expert_fields(model, parallel, engine=engine)}
    if model.architecture in LATENT:
        return MLATransformerConfig, {**common, **_latent(model)}
    grouped = {**common, **_grouped(model)}
    if model.rope_scaling.rope_type == "yarn":
        return YarnTransformerConfig, {**grouped, **yarn_fields(model)}
    return TransformerConfig, grouped


def gpt_fields(model: ModelConfig, *, vocab_size: int) -> dict[str, Any]:
    """Return the arguments of `GptModel` that the model decides."""
    # Latent attention keeps its positions to itself; GPTModel only must not add learned ones.
    positions = {"position_embedding_type": "rope"} if model.architecture in LATENT else model_positions(model)
    return {
        "vocab_size": vocab_size,
        "max_sequence_length": model.max_position_embeddings,
        "share_embeddings_and_output_weights": model.tie_word_embeddings,
        **positions,
    }


def _shape(model: ModelConfig) -> dict[str, Any]:
    return {
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.intermediate_size,
        "num_attention_heads": model.num_attention_heads,
        "normalization": "RMSNorm",
        "layernorm_epsilon": model.rms_norm_eps,
        "gated_linear_unit": True,
        "activation_func": F.silu,
        "add_bias_linear": False,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "init_method_std": model.initializer_range,
    }


def _grouped(model: ModelConfig) -> dict[str, Any]:
    return {
        "num_query_groups": model.kv_heads,
        "kv_channels": model.head_width,
        "qk_layernorm": model.architecture in ("qwen3", "qwen3_moe"),
        "add_qkv_bias": model.qkv_bias,
    }


def _latent(model: ModelConfig) -> dict[str, Any]:
    return {
        "add_qkv_bias": False,
        "multi_latent_attention": True,
        # The norms of both latents, which every DeepSeek has.
        "qk_layernorm": True,
        "q_lora_rank": model.q_lora_rank,
        "kv_lora_rank": model.kv_lora_rank,
        "qk_head_dim": model.qk_nope_head_dim,
        "qk_pos_emb_head_dim": model.qk_rope_head_dim,
        "v_head_dim": model.v_head_dim,
        # Megatron's plain attention takes the width of its output from here.
        "kv_channels": model.v_head_dim,
        **latent_positions(model),
    }
