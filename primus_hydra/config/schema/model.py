"""The backend-neutral model: one decoder-only architecture in Hugging Face field names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.schema.key import REQUIRED, key, node

Architecture = Literal[
    "llama", "qwen2", "qwen3", "qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v3", "gpt_oss", "llama4_text"
]
EXPERTS_OF_FULL_WIDTH = ("mixtral", "gpt_oss")
"""Families that have experts only and call their width `intermediate_size`."""


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary positions are stretched beyond the length the model was first trained on."""

    rope_type: Literal["llama3", "yarn", "linear"] | None = key(None, "Method; null means no scaling.")
    factor: float = key(1.0, "How many times longer the context becomes.", ge=1)
    original_max_position_embeddings: int | None = key(None, "Context length before scaling.", unit="tokens", gt=0)
    low_freq_factor: float = key(1.0, "llama3: wavelengths above original/low are scaled fully.", gt=0)
    high_freq_factor: float = key(4.0, "llama3: wavelengths below original/high are not scaled.", gt=0)
    beta_fast: float = key(32.0, "yarn: rotations above which a dimension is not scaled.", gt=0)
    beta_slow: float = key(1.0, "yarn: rotations below which a dimension is scaled fully.", gt=0)
    mscale: float = key(1.0, "yarn: numerator of the attention temperature.", ge=0)
    mscale_all_dim: float = key(0.0, "yarn: denominator of the attention temperature.", ge=0)
    truncate: bool = key(True, "yarn: the bounds of the ramp are rounded to whole dimensions.")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer; names and meanings are those of `transformers` configuration classes.

    Where families name one thing differently, one name stands for all: the experts have DeepSeek's names (Mixtral and
    gpt-oss say num_local_experts for n_routed_experts, Qwen3-MoE num_experts), and `intermediate_size` is the width of
    dense layers also in Llama 4 (there intermediate_size_mlp).
    """

    name: str = key(REQUIRED, "Short name, used in run names.")
    architecture: Architecture = key("llama", "Family that fixes block layout and parameter names.")
    hidden_size: int = key(REQUIRED, "Width of the residual stream.", gt=0)
    intermediate_size: int = key(REQUIRED, "Width of the dense gated feed-forward layer.", gt=0)
    num_hidden_layers: int = key(REQUIRED, "Number of decoder blocks.", gt=0)
    num_attention_heads: int = key(REQUIRED, "Query heads per layer.", gt=0)
    num_key_value_heads: int | None = key(
        None, "Key and value heads per layer; null means as many as query heads.", gt=0
    )
    head_dim: int | None = key(None, "Width of one head; null means hidden_size / num_attention_heads.", gt=0)
    vocab_size: int | None = key(None, "Rows of the embedding; null takes the tokenizer's.", gt=0)
    max_position_embeddings: int = key(REQUIRED, "Longest sequence the model is made for.", unit="tokens", gt=0)
    rms_norm_eps: float = key(1e-5, "Epsilon of every RMS norm.", gt=0)
    rope_theta: float = key(10000.0, "Base of the rotary frequencies.", gt=0)
    rope_scaling: RopeScaling = node(RopeScaling, "Context extension of the rotary embedding.")
    tie_word_embeddings: bool = key(False, "Share the input embedding with the output projection.")
    attention_bias: bool = key(False, "Bias in the attention projections (Qwen2: always in the first three).")
    initializer_range: float = key(0.02, "Standard deviation that the published model was initialised with.", gt=0)
    n_routed_experts: int | None = key(None, "Routed experts per MoE layer; null means a dense model.", gt=0)
    n_shared_experts: int | None = key(None, "Shared experts per MoE layer.", ge=0)
    num_experts_per_tok: int | None = key(None, "Routed experts that each token visits.", gt=0)
    moe_intermediate_size: int | None = key(
        None, "Width of one expert's feed-forward layer; null: intermediate_size (Mixtral, gpt-oss).", gt=0
    )
    first_k_dense_replace: int = key(0, "Leading layers that stay dense in a MoE model.", ge=0)
    interleave_moe_layer_step: int = key(1, "Every how many layers one routes to experts, counted from 1.", gt=0)
    scoring_func: Literal["softmax", "sigmoid"] = key("softmax", "How router logits become scores.")
    norm_topk_prob: bool = key(False, "Normalise the chosen experts' scores to sum to one.")
    routed_scaling_factor: float = key(1.0, "Multiplier of the routed experts' output.", gt=0)
    n_group: int | None = key(None, "Expert groups for group-limited routing.", gt=0)
    topk_group: int | None = key(None, "Groups that each token may reach.", gt=0)
    aux_loss_alpha: float = key(0.0, "Weight of the load-balancing loss.", ge=0)
    q_lora_rank: int | None = key(None, "Latent width of queries (MLA); null means a plain projection.", gt=0)
    kv_lora_rank: int | None = key(None, "Latent width of keys and values (MLA); null means no MLA.", gt=0)
    qk_nope_head_dim: int | None = key(None, "Head width without rotary positions (MLA).", gt=0)
    qk_rope_head_dim: int | None = key(None, "Head width with rotary positions (MLA).", gt=0)
    v_head_dim: int | None = key(None, "Width of a value head (MLA).", gt=0)
    sliding_window: int | None = key(
        None, "Tokens that a layer looks back (Mixtral: all layers, gpt-oss: every other); null: all.", gt=0
    )
    swiglu_limit: float | None = key(None, "gpt-oss: bound of what the gated product multiplies.", gt=0)
    attention_chunk_size: int | None = key(None, "Llama 4: layers with positions attend inside chunks.", gt=0)
    no_rope_layer_interval: int | None = key(
        None, "Llama 4: every how many layers one has no rotary positions; null: none.", gt=0
    )
    use_qk_norm: bool = key(False, "Llama 4: normalise queries and keys of the layers with rotary positions.")
    attn_temperature_tuning: bool = key(False, "Llama 4: scale queries of layers without positions by their place.")
    floor_scale: int = key(8192, "Llama 4: length after which that scale grows.", unit="tokens", gt=0)
    attn_scale: float = key(0.1, "Llama 4: how fast that scale grows.", ge=0)
    parameters: int | None = key(
        None, "Parameter total of these sizes; checked, and counted anew where sizes are overridden.", gt=0
    )
    path: str | None = key(None, "Folder of a Hugging Face model, or its config.json, for model=hf.")
    source: str | None = key(None, "Where the numbers of this file come from.")

    @property
    def kv_heads(self) -> int:
        """Key and value heads, with the null default resolved."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        """Width of one query head, with the null default resolved."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return self.n_routed_experts is not None

    @property
    def qkv_bias(self) -> bool:
        """Whether the projections to queries, keys and values have biases."""
        return self.attention_bias or self.architecture == "qwen2"

    @property
    def expert_width(self) -> int:
        """Width of one routed expert, with the null default resolved."""
        return self.moe_intermediate_size or self.intermediate_size

    def routes(self, layer: int) -> bool:
        """Whether a layer, counted from 0, routes tokens to experts."""
        sparse = layer >= self.first_k_dense_replace and (layer + 1) % self.interleave_moe_layer_step == 0
        return self.is_moe and sparse

    @property
    def moe_layers(self) -> int:
        """Number of layers that route tokens to experts."""
        return sum(self.routes(layer) for layer in range(self.num_hidden_layers))
