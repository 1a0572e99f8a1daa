"""Where the numbers of torchtitan's parameters lie in the tensors of a Hugging Face model. Imports no torch.

torchtitan keeps almost every matrix as it is; what differs are the rows of Llama's queries and keys (its rotary
positions turn neighbouring pairs) and routed experts, which are one tensor for all of a layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.convert.layout import StoredPart
from primus_hydra.weights.pieces import whole_of
from primus_hydra.weights.tensors import EMBEDDING, FINAL_NORM, OUTPUT, ROUTER_BIAS, Shape, expert_names

_TOP: Final = {"tok_embeddings.weight": EMBEDDING, "norm.weight": FINAL_NORM}
_LAYER: Final = {
    "attention_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attention.qkv_linear.wq": "self_attn.q_proj",
    "attention.qkv_linear.wk": "self_attn.k_proj",
    "attention.qkv_linear.wv": "self_attn.v_proj",
    "attention.wo.weight": "self_attn.o_proj.weight",
    "attention.wq.weight": "self_attn.q_proj.weight",
    "attention.wq_a.weight": "self_attn.q_a_proj.weight",
    "attention.wq_b.weight": "self_attn.q_b_proj.weight",
    "attention.wkv_a.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "attention.kv_norm.weight": "self_attn.kv_a_layernorm.weight",
    "attention.wkv_b.weight": "self_attn.kv_b_proj.weight",
    "attention.k_norm.weight": "self_attn.k_norm.weight",
    "feed_forward.w1.weight": "mlp.gate_proj.weight",
    "feed_forward.w2.weight": "mlp.down_proj.weight",
    "feed_forward.w3.weight": "mlp.up_proj.weight",
    "moe.shared_experts.w1.weight": "mlp.shared_experts.gate_proj.weight",
    "moe.shared_experts.w2.weight": "mlp.shared_experts.down_proj.weight",
    "moe.shared_experts.w3.weight": "mlp.shared_experts.up_proj.weight",
    "moe.expert_bias_E": ROUTER_BIAS,
}
"""Names within a layer; those without `.weight` serve weights and biases."""
_EXPERTS: Final = {"w1_EFD": "gate", "w2_EDF": "down", "w3_EFD": "up"}
_EXPERTS_PREFIX: Final = "moe.routed_experts.inner_experts."


def stored_parts(
    key: str, shape: Shape, model: ModelConfig, expected: Mapping[str, Shape]
) -> tuple[StoredPart, ...] | None:
    """Return the parts of one of torchtitan's tensors, whole or expert by expert; None for one that is not known."""
    if key in _TOP or key == "lm_head.weight":
        tensor = _TOP.get(key) or (EMBEDDING if model.tie_word_embeddings else OUTPUT)
        return (_whole(key, shape, tensor, expected),)
    found = re.fullmatch(r"layers\.(\d+)\.(.+)", key)
    if found is None:
        return None
    prefix, rest = f"model.layers.{found[1]}.", found[2]
    if rest.startswith(_EXPERTS_PREFIX):
        return _experts(key, shape, prefix, model, expected)
    tensor = prefix + _named(rest, model)
    if tensor not in expected:
        return None
    return (_whole(key, shape, tensor, expected, pairs=_pairs(rest, model)),)


def _named(rest: str, model: ModelConfig) -> str:
    if rest == "moe.router.gate.weight":
        return expert_names(model).router
    if rest == "attention.q_norm.weight":  # of the latent, where there is one
        return f"self_attn.{'q_a_layernorm' if model.q_lora_rank else 'q_norm'}.weight"
    module, _, kind = rest.rpartition(".")
    return f"{_LAYER[module]}.{kind}" if module in _LAYER else _LAYER.get(rest, rest)


def _pairs(rest: str, model: ModelConfig) -> int | None:
    """Return the number of heads whose rows are in pairs."""
    if model.architecture != "llama":
        return None
    heads = {"wq": model.num_attention_heads, "wk": model.kv_heads}
    found = re.fullmatch(r"attention\.qkv_linear\.(w[qk])\.\w+", rest)
    return heads[found[1]] if found else None


def _experts(
    key: str, shape: Shape, prefix: str, model: ModelConfig, expected: Mapping[str, Shape]
) -> tuple[StoredPart, ...] | None:
    which = _EXPERTS.get(key.rpartition(".")[2])
    if which is None:
        return None
    names = [f"{prefix}{expert_names(model).matrix(expert, which)}" for expert in range(shape[0])]
    if not all(name in expected for name in names):
        return None
    return tuple(
        StoredPart(key=key, offset=(expert, 0, 0), shape=(1, *shape[1:]), pieces=(whole_of(name, expected),))
        for expert, name in enumerate(names)
    )


def _whole(key: str, shape: Shape, tensor: str, expected: Mapping[str, Shape], pairs: int | None = None) -> StoredPart:
    return StoredPart(key=key, offset=(0,) * len(shape), shape=shape, pieces=(whole_of(tensor, expected),), pairs=pairs)
