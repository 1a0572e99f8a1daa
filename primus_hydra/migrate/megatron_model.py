"""Megatron's arguments of a model as fields of a neutral one.

Arguments that our families fix (RMSNorm, SwiGLU, rotary positions, no biases) are not fields: another value of theirs
is reported. Sources: Megatron's `arguments.py` for what follows from what, and its rotary embedding for the constants
of Llama 3's scaling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from primus_hydra.migrate.layer_pattern import layer_pattern
from primus_hydra.migrate.ledger import Ledger
from primus_hydra.migrate.model_fields import ModelField

_SAME: Final = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "kv_channels": "head_dim",
    "max_position_embeddings": "max_position_embeddings",
    "layernorm_epsilon": "rms_norm_eps",
    "rotary_base": "rope_theta",
    "init_method_std": "initializer_range",
}
_LATENT: Final = {
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "qk_head_dim": "qk_nope_head_dim",
    "qk_pos_emb_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
}
_YARN: Final = {
    "rotary_scaling_factor": "factor",
    "original_max_position_embeddings": "original_max_position_embeddings",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all_dim",
}
_EXPERTS: Final = {
    "num_experts": "n_routed_experts",
    "moe_ffn_hidden_size": "moe_intermediate_size",
    "moe_router_topk": "num_experts_per_tok",
    "moe_router_topk_scaling_factor": "routed_scaling_factor",
    "moe_router_score_function": "scoring_func",
    "moe_router_num_groups": "n_group",
    "moe_router_group_topk": "topk_group",
}
_FIXED: Final[dict[str, tuple[Any, str]]] = {
    "normalization": ("RMSNorm", "every family here has RMSNorm"),
    "swiglu": (True, "every family here has SwiGLU"),
    "add_bias_linear": (False, "the linear layers of the families here have no biases of their own"),
    "position_embedding_type": ("rope", "every family here has rotary positions"),
}
"""Arguments that are the same in every family here: that value, and what to say of another one."""
_NOT_HERE: Final = ("squared_relu", "quick_geglu", "openai_gelu", "bert_load", "hybrid_override_pattern")
_SHAPES_OF_ATTENTION: Final = ("qk_layernorm", "multi_latent_attention", "add_qkv_bias")
_ROUTING: Final = ("moe_router_pre_softmax", "moe_router_enable_expert_bias")
_BALANCE: Final = ("moe_router_load_balancing_type", "moe_aux_loss_coeff")
_LLAMA3: Final = {"original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_SWITCHES: Final = (*_SHAPES_OF_ATTENTION, *_ROUTING, "add_position_embedding", "use_rotary_position_embeddings")


def model_fields(ledger: Ledger) -> list[ModelField]:
    """Return what the recipe says of the model; reports what no family here can be."""
    fields = [*_shape(ledger), *_positions(ledger), *(_experts(ledger) if ledger.get("num_experts") else ())]
    _report_fixed(ledger)
    _report_idle(ledger)
    if ledger.known(*_SWITCHES):
        fields.insert(0, _field(ledger, "architecture", _architecture(ledger), *_SWITCHES))
    return fields


def _field(ledger: Ledger, key: str, value: Any, *names: str) -> ModelField:
    return ModelField(key=key, value=value, names=names, explicit=ledger.has(*names))


def _shape(ledger: Ledger) -> Iterator[ModelField]:
    for name, key in _SAME.items():
        if ledger.get(name) is not None:
            yield _field(ledger, key, ledger.get(name), name)
    yield from _feed_forward(ledger)
    heads = "num_attention_heads"
    if ledger.known("group_query_attention", "num_query_groups") and ledger.get(heads):
        grouped = ledger.get("group_query_attention")
        groups = ledger.get("num_query_groups") if grouped else ledger.get(heads)
        yield _field(ledger, "num_key_value_heads", groups, "num_query_groups", "group_query_attention")
    if ledger.known("untie_embeddings_and_output_weights"):
        name = "untie_embeddings_and_output_weights"
        yield _field(ledger, "tie_word_embeddings", not ledger.get(name), name)
    rows = next((name for name in ("padded_vocab_size", "vocab_size") if ledger.get(name)), None)
    if rows:
        yield _field(ledger, "vocab_size", ledger.get(rows), rows)
    if ledger.get("multi_latent_attention"):
        for name, key in _LATENT.items():
            yield _field(ledger, key, ledger.get(name), name)


def _feed_forward(ledger: Ledger) -> Iterator[ModelField]:
    width, hidden = ledger.get("ffn_hidden_size"), ledger.get("hidden_size")
    if width is None and hidden and ledger.complete:
        width = int(4 * hidden * 2 / 3 / 64) * 64 if ledger.get("swiglu") else 4 * hidden
    if width is not None:
        yield _field(ledger, "intermediate_size", width, "ffn_hidden_size")


def _positions(ledger: Ledger) -> Iterator[ModelField]:
    scaling, names = "rope_scaling", ("use_rope_scaling", "rope_scaling_factor")
    linear = ledger.number("rotary_seq_len_interpolation_factor")
    if ledger.get("multi_latent_attention") and ledger.get("rope_type") in ("yarn", None):
        yield _field(ledger, f"{scaling}.rope_type", "yarn", "rope_type")
        for name, key in _YARN.items():
            yield _field(ledger, f"{scaling}.{key}", ledger.get(name), name)
    elif ledger.get("use_rope_scaling"):
        yield _field(ledger, f"{scaling}.rope_type", "llama3", *names)
        yield _field(ledger, f"{scaling}.factor", ledger.get("rope_scaling_factor") or 8.0, *names)
        for key, value in _LLAMA3.items():
            yield _field(ledger, f"{scaling}.{key}", value, *names)
    elif linear and linear != 1:
        yield _field(ledger, f"{scaling}.rope_type", "linear", "rotary_seq_len_interpolation_factor")
        yield _field(ledger, f"{scaling}.factor", linear, "rotary_seq_len_interpolation_factor")
    elif ledger.known(*names):
        yield _field(ledger, f"{scaling}.rope_type", None, *names)


def _experts(ledger: Ledger) -> Iterator[ModelField]:
    for name, key in _EXPERTS.items():
        if ledger.get(name) is not None:
            yield _field(ledger, key, ledger.get(name), name)
    softmax = ledger.get("moe_router_score_function") in ("softmax", None)
    if ledger.known("moe_router_pre_softmax"):
        normed = not (softmax and ledger.get("moe_router_pre_softmax"))
        yield _field(ledger, "norm_topk_prob", normed, "moe_router_pre_softmax")
    shared = "moe_shared_expert_intermediate_size"
    width = ledger.number("moe_ffn_hidden_size") or ledger.number("ffn_hidden_size")
    if ledger.number(shared) and width:
        yield _field(ledger, "n_shared_experts", round((ledger.number(shared) or 0) / width), shared)
    yield from _dense_layers(ledger)
    if ledger.known(*_BALANCE):
        weight = ledger.number("moe_aux_loss_coeff") if ledger.get(_BALANCE[0]) != "none" else 0
        yield _field(ledger, "aux_loss_alpha", weight or 0.0, *_BALANCE)


def _dense_layers(ledger: Ledger) -> Iterator[ModelField]:
    name, layers = "moe_layer_freq", ledger.number("num_layers")
    if not ledger.has(name) or layers is None:
        return
    pattern = layer_pattern(ledger.get(name), int(layers))
    if pattern is None:
        what = f"it is no pattern of {int(layers)} layers: 1, a list, or sums and multiples of lists of 0 and 1"
        ledger.tell("unsupported", what, name)
        return
    dense = pattern.index(1) if 1 in pattern else len(pattern)
    step = next((step for step in range(1, len(pattern) + 1) if pattern == _every(step, len(pattern))), None)
    if all(pattern[dense:]):
        yield _field(ledger, "first_k_dense_replace", dense, name)
    elif step:
        yield _field(ledger, "interleave_moe_layer_step", step, name)
    else:
        what = (
            "layers that route lie after the dense ones, or every so many from the end of the first such stretch, here"
        )
        ledger.tell("unsupported", what, name)


def _every(step: int, layers: int) -> list[int]:
    return [int((layer + 1) % step == 0) for layer in range(layers)]


def _architecture(ledger: Ledger) -> str:
    if ledger.get("multi_latent_attention"):
        sigmoid = ledger.get("moe_router_score_function") == "sigmoid" or ledger.get("moe_router_enable_expert_bias")
        return "deepseek_v3" if sigmoid else "deepseek_v2"
    if ledger.get("num_experts"):
        return "qwen3_moe" if ledger.get("qk_layernorm") else "mixtral"
    if ledger.get("qk_layernorm"):
        return "qwen3"
    return "qwen2" if ledger.get("add_qkv_bias") else "llama"


def _report_fixed(ledger: Ledger) -> None:
    for name, (wanted, reason) in _FIXED.items():
        if ledger.has(name) and ledger.get(name) == wanted:
            ledger.tell("translated", reason, name)
        elif ledger.has(name):
            ledger.tell("changed", reason, name)
        elif ledger.complete:
            known = ledger.vocabulary.find(name) if ledger.vocabulary else None
            if known is not None:
                ledger.notes.append(f"{name} is not given, so it was {_word(known.default)} there; {reason}")
    for name in _NOT_HERE:
        if ledger.has(name) and ledger.get(name):
            ledger.tell("changed", "every family here has SwiGLU", name)


def _report_idle(ledger: Ledger) -> None:
    """Say of arguments that count only with another one that they did nothing, or that they are off."""
    latent = (*_LATENT, *_YARN, "rope_type")
    experts = (*_EXPERTS, *_ROUTING, *_BALANCE, "moe_layer_freq", "moe_shared_expert_intermediate_size")
    for names, switch in ((latent, "multi_latent_attention"), (experts, "num_experts")):
        if ledger.known(switch) and not ledger.get(switch):
            for name in (name for name in names if ledger.has(name)):
                known = ledger.vocabulary.find(name) if ledger.vocabulary else None
                usual = ledger.get(name) in (None, False) or (known is not None and ledger.get(name) == known.default)
                ledger.tell("default" if usual else "dead", None if usual else f"it counts only with {switch}", name)
            ledger.tell("default", None, switch)
    for name in ("vocab_size", "padded_vocab_size", "rotary_seq_len_interpolation_factor", "kv_channels"):
        if ledger.has(name) and ledger.get(name) in (None, 1):
            ledger.tell("default", None, name)
    if ledger.has("rotary_percent"):
        whole = ledger.number("rotary_percent") == 1
        ledger.tell(
            "default" if whole else "changed", None if whole else "positions turn the whole head here", "rotary_percent"
        )


def _word(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
