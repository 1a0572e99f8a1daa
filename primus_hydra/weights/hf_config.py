"""config.json of Hugging Face and the neutral model, in both directions.

Which field is which key, what a class takes for a field that is left out, and both forms of rotary positions: see
`config.hf_families` and `config.hf_rope`. What decides no weight and no output is not compared:
`max_position_embeddings` (how long a sequence may be is the job's choice), dropout, balance losses, the standard
deviation of the first weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from primus_hydra.config.hf_families import HF_FAMILIES, HfFamily
from primus_hydra.config.hf_model import dense_layers, strange_patterns, their_values
from primus_hydra.config.hf_rope import our_rope, rope_scaling, their_rope
from primus_hydra.config.schema.model import ModelConfig

_NOT_COMPARED: Final = ("max_position_embeddings", "initializer_range", "aux_loss_alpha")
_NOT_READ: Final = ("attention_dropout", "router_jitter_noise", "seq_aux")
"""Fixed fields that decide no output."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A field in which a config.json and the job's model disagree; `key` is the neutral key, None if there is none."""

    field: str
    theirs: Any
    ours: Any
    key: str | None


def hf_config(
    model: ModelConfig, *, vocab_size: int, bos_id: int | None, eos_id: int | None, dtype: str
) -> dict[str, Any]:
    """Return config.json for `model` with `vocab_size` rows and weights in `dtype` (a name of torch's)."""
    family = HF_FAMILIES[model.architecture]
    return {
        "architectures": [family.class_name],
        "model_type": model.architecture,
        **_our_values(model, family, vocab_size),
        "rope_theta": model.rope_theta,
        "rope_scaling": rope_scaling(model.rope_scaling),
        **family.fixed,
        **_routing(model),
        "bos_token_id": bos_id,
        "eos_token_id": eos_id,
        "torch_dtype": dtype,
    }


def differences(config: Mapping[str, Any], model: ModelConfig, vocab_size: int) -> list[Difference]:
    """Return every field in which `config` describes another model than `model` with `vocab_size` rows."""
    family = _family(config)
    if family != model.architecture:
        return [Difference(field="model_type", theirs=family, ours=model.architecture, key="model.architecture")]
    return [*_field_differences(config, model, vocab_size), *_rope_differences(config, model)]


def _family(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type") or next(iter(config.get("architectures") or ["no model_type"])))


def _our_values(model: ModelConfig, family: HfFamily, vocab_size: int) -> dict[str, Any]:
    """Return the named fields of config.json as `model` has them, nulls resolved."""
    resolved = {
        "vocab_size": vocab_size,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_width,
        **_groups(model),
    }
    return {name: resolved.get(key, getattr(model, key)) for name, key in family.names.items()}


def _groups(model: ModelConfig) -> dict[str, Any]:
    """Return the groups of experts; DeepSeek-V3's code computes with them always, and one group limits nothing."""
    groups = model.n_group or (1 if model.architecture == "deepseek_v3" else None)
    return {"n_group": groups, "topk_group": model.topk_group or groups}


def _routing(model: ModelConfig) -> dict[str, Any]:
    if model.architecture == "deepseek_v2":
        limited = (model.topk_group or model.n_group or 1) < (model.n_group or 1)
        return {"topk_method": "group_limited_greedy" if limited else "greedy"}
    return {"mlp_only_layers": list(range(model.first_k_dense_replace))} if model.architecture == "qwen3_moe" else {}


def _field_differences(config: Mapping[str, Any], model: ModelConfig, vocab_size: int) -> Iterator[Difference]:
    family = HF_FAMILIES[model.architecture]
    theirs, ours = their_values(config, family), _our_values(model, family, vocab_size)
    for name, value in ours.items():
        there = theirs[name]
        if name not in _NOT_COMPARED and not _same(there, value):
            shown = "nothing" if there is None else there
            yield Difference(field=name, theirs=shown, ours=value, key=f"model.{family.names[name]}")
    for name, value in family.fixed.items():
        there = config.get(name)
        if name not in _NOT_READ and there is not None and not _same(there, value):
            yield Difference(field=name, theirs=there, ours=value, key=None)
    for name in strange_patterns(config):
        yield Difference(field=name, theirs="another pattern", ours="the one of its family", key=None)
    if model.architecture == "qwen3_moe" and dense_layers(config) != model.first_k_dense_replace:
        key, there = "first_k_dense_replace", dense_layers(config)
        yield Difference(field="mlp_only_layers", theirs=there, ours=model.first_k_dense_replace, key=f"model.{key}")
    if config.get("quantization_config"):
        yield Difference(field="quantization_config", theirs="quantized weights", ours="none", key=None)


def _rope_differences(config: Mapping[str, Any], model: ModelConfig) -> Iterator[Difference]:
    there, here = their_rope(config, model.architecture), our_rope(model)
    for name in dict.fromkeys([*here, *there]):
        if not _same(there.get(name), here.get(name)):
            key = f"model.{name}" if name == "rope_theta" else f"model.rope_scaling.{name}"
            known = name != "partial_rotary_factor"
            yield Difference(field=name, theirs=there.get(name), ours=here.get(name), key=key if known else None)


def _same(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, bool) or isinstance(ours, bool):
        return bool(theirs) == bool(ours)
    if isinstance(theirs, (int, float)) and isinstance(ours, (int, float)):
        return math.isclose(theirs, ours, rel_tol=1e-9)
    return bool(theirs == ours)
