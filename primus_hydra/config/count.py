"""Parameters of a model, counted from its configuration alone. Pure arithmetic.

Counts what `transformers` counts with `sum(p.numel() for p in model.parameters())`: a tied output projection once,
buffers (rotary frequencies, DeepSeek-V3's router correction bias) not at all. It refuses a configuration that leaves
the count open: an unknown vocabulary, or a family that lacks the keys its layers are made of.
"""

from __future__ import annotations

from dataclasses import dataclass

from primus_hydra.config.schema.model import EXPERTS_OF_FULL_WIDTH, ModelConfig
from primus_hydra.errors import Problem, UserError

_MLA = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_MOE = ("moe_intermediate_size", "num_experts_per_tok")
_DENSE = ("llama", "qwen2", "qwen3")


def parameter_count(model: ModelConfig, vocab_size: int | None = None) -> int:
    """Return the number of trainable parameters; `vocab_size` wins over `model.vocab_size`.

    With h hidden_size, L layers, V vocabulary, and 2h per layer for its two norms:

        total = V*h * (1 if tied else 2) + h + sum over layers of (2h + attention + feed-forward)

        llama attention        h*d*(2*heads + 2*kv_heads), d the head width; with biases d*(heads + 2*kv_heads) + h more
        mixtral, llama4        llama's (Llama 4 normalises queries and keys without weights)
        qwen2 attention        llama's + d*(heads + 2*kv_heads) (biases, but none in the output)
        qwen3 attention        llama's + 2d (a norm of queries and one of keys), in the mixture too
        gpt_oss attention      llama's + heads (the sinks)
        deepseek attention     h*heads*q, or h*r_q + r_q + r_q*heads*q with q_lora_rank r_q, where q = nope + rope;
                               + h*(r_kv + rope) + r_kv + r_kv*heads*(nope + v) + heads*v*h
        dense feed-forward     3*h*intermediate_size
        expert feed-forward    3*h*m*(n_routed + n_shared) + h*n_routed (the router), m the width of an expert
        gpt_oss                (2*m + h + 1)*n_routed more (biases of experts and router)

    Raises UserError if keys of the family are missing, ValueError if no vocabulary size is known.
    """
    return _total(model, vocab_size, _experts(model).routed)


def active_parameter_count(model: ModelConfig, vocab_size: int | None = None) -> int:
    """Return the parameters that one token meets: `num_experts_per_tok` routed experts per layer instead of all.

    Embedding, output projection, shared experts and the whole router count; reports that leave the input embedding out
    state less (DeepSeek-V2-Lite: 2.66 billion here, 2.4 in its report). Equal to `parameter_count` for a dense model.
    Raises as `parameter_count` does.
    """
    return _total(model, vocab_size, _experts(model).per_token)


@dataclass(frozen=True, kw_only=True)
class _Experts:
    """Expert numbers of one MoE layer; all zero in a dense model."""

    routed: int
    per_token: int
    shared: int


def _experts(model: ModelConfig) -> _Experts:
    if model.n_routed_experts is None:
        return _Experts(routed=0, per_token=0, shared=0)
    if model.architecture in _DENSE:
        what = f"the {model.architecture} family has no experts, yet model.n_routed_experts is {model.n_routed_experts}"
        raise UserError(Problem(key="model.architecture", what=what, hint="use a family with experts, or drop them"))
    *_, per_token = _required(model, *(_MOE[1:] if model.architecture in EXPERTS_OF_FULL_WIDTH else _MOE))
    return _Experts(routed=model.n_routed_experts, per_token=per_token, shared=model.n_shared_experts or 0)


def _total(model: ModelConfig, vocab_size: int | None, experts_counted: int) -> int:
    vocabulary = vocab_size or model.vocab_size
    if vocabulary is None:
        raise ValueError(f"{model.name} takes its vocabulary from the tokenizer: pass vocab_size")
    hidden, layers = model.hidden_size, model.num_hidden_layers
    sparse = model.moe_layers
    embeddings = vocabulary * hidden * (1 if model.tie_word_embeddings else 2)
    every_layer = layers * (2 * hidden + _attention(model))
    feed_forward = (layers - sparse) * 3 * hidden * model.intermediate_size + sparse * _moe(model, experts_counted)
    return embeddings + hidden + every_layer + feed_forward


def _moe(model: ModelConfig, experts_counted: int) -> int:
    experts, hidden, width = _experts(model), model.hidden_size, model.expert_width
    biases, router = (2 * width + hidden, hidden + 1) if model.architecture == "gpt_oss" else (0, hidden)
    one_expert = 3 * hidden * width + biases
    return one_expert * (experts_counted + experts.shared) + router * experts.routed


def _attention(model: ModelConfig) -> int:
    if model.architecture.startswith("deepseek"):
        return _latent_attention(model)
    norms = 2 * model.head_width if model.architecture in ("qwen3", "qwen3_moe") else 0
    sinks = model.num_attention_heads if model.architecture == "gpt_oss" else 0
    return _grouped_attention(model) + norms + sinks


def _grouped_attention(model: ModelConfig) -> int:
    hidden, query = model.hidden_size, model.num_attention_heads * model.head_width
    key_value = 2 * model.kv_heads * model.head_width
    biases = query + key_value if model.qkv_bias else 0
    biases += hidden if model.attention_bias else 0
    return hidden * (2 * query + key_value) + biases


def _latent_attention(model: ModelConfig) -> int:
    hidden, heads = model.hidden_size, model.num_attention_heads
    rank, nope, rope, value = _required(model, *_MLA)
    query = heads * (nope + rope)
    down = rank + rope
    biases = down + hidden if model.attention_bias else 0
    if model.q_lora_rank is None:
        queries = hidden * query
    else:
        queries = model.q_lora_rank * (hidden + 1 + query)
        biases += model.q_lora_rank if model.attention_bias else 0
    keys_values = hidden * down + rank + rank * heads * (nope + value)
    return queries + keys_values + heads * value * hidden + biases


def _required(model: ModelConfig, *keys: str) -> tuple[int, ...]:
    values: dict[str, int | None] = {key: getattr(model, key) for key in keys}
    missing = [key for key, value in values.items() if value is None]
    if missing:
        raise UserError(
            *(
                Problem(key=f"model.{key}", what=f"the {model.architecture} family needs it", hint="give it a number")
                for key in missing
            )
        )
    return tuple(value for value in values.values() if value is not None)
