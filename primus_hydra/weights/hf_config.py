"""config.json of Hugging Face and the neutral model, in both directions.

Written in the form that `transformers` reads from 4.45 on and 5 turns into its own: `rope_theta` and `rope_scaling`
side by side. Both forms are read. Where a file leaves a field out, the default of its class in `transformers` counts.
What decides no weight and no output is not compared: `max_position_embeddings` (how long a sequence may be is the
job's choice), dropout, the standard deviation of the first weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from primus_hydra.config.schema.model import ModelConfig, RopeScaling
from primus_hydra.weights.tensors import FAMILIES

_ABSENT_ROPE: Final = "none"
_SHARED_DEFAULTS: Final[Mapping[str, Any]] = {
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "hidden_act": "silu",
}
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {**_SHARED_DEFAULTS, "mlp_bias": False},
    "qwen3": {**_SHARED_DEFAULTS, "head_dim": 128, "use_sliding_window": False},
}
"""Defaults of LlamaConfig and Qwen3Config (transformers 5.24) for the fields that are compared."""
_REQUIRED: Final = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_FIXED: Final[Mapping[str, Any]] = {"hidden_act": "silu", "mlp_bias": False, "use_sliding_window": False}
"""Fields in which no neutral model can differ."""


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
    """Return config.json for `model` with `vocab_size` rows and weights in `dtype` (a name of torch's).

    Raises KeyError for a family whose form is not known.
    """
    return {
        "architectures": [FAMILIES[model.architecture]],
        "model_type": model.architecture,
        "vocab_size": vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_width,
        "max_position_embeddings": model.max_position_embeddings,
        "rms_norm_eps": model.rms_norm_eps,
        "rope_theta": model.rope_theta,
        "rope_scaling": _rope_scaling(model.rope_scaling),
        "tie_word_embeddings": model.tie_word_embeddings,
        "attention_bias": model.attention_bias,
        "initializer_range": model.initializer_range,
        "hidden_act": "silu",
        "bos_token_id": bos_id,
        "eos_token_id": eos_id,
        "torch_dtype": dtype,
        **({"mlp_bias": False} if model.architecture == "llama" else {"use_sliding_window": False}),
    }


def differences(config: Mapping[str, Any], model: ModelConfig, vocab_size: int) -> list[Difference]:
    """Return every field in which `config` describes another model than `model` with `vocab_size` rows."""
    family = _family(config)
    if family != model.architecture:
        return [Difference(field="model_type", theirs=family, ours=model.architecture, key="model.architecture")]
    theirs = {**_DEFAULTS[family], **{name: value for name, value in config.items() if value is not None}}
    return [*_field_differences(theirs, model, vocab_size), *_rope_differences(theirs, model)]


def _family(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type") or next(iter(config.get("architectures") or ["no model_type"])))


def _field_differences(theirs: Mapping[str, Any], model: ModelConfig, vocab_size: int) -> Iterator[Difference]:
    ours = {
        **{name: getattr(model, name) for name in (*_REQUIRED, *_SHARED_DEFAULTS) if name != "hidden_act"},
        "vocab_size": vocab_size,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_width,
        **{name: value for name, value in _FIXED.items() if name in _DEFAULTS[model.architecture]},
    }
    derived = {**dict.fromkeys(_REQUIRED, "nothing"), **_derived_sizes(theirs)}
    for name, value in ours.items():
        there = theirs.get(name, derived.get(name))
        if not _same(there, value):
            key = None if name in _FIXED else f"model.{name}"
            yield Difference(field=name, theirs=there, ours=value, key=key)
    if theirs.get("quantization_config"):
        yield Difference(field="quantization_config", theirs="quantized weights", ours="none", key=None)


def _derived_sizes(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `transformers` takes for sizes that are left out."""
    hidden, heads = theirs.get("hidden_size"), theirs.get("num_attention_heads")
    if not (isinstance(hidden, int) and isinstance(heads, int) and heads):
        return {}
    return {"num_key_value_heads": heads, "head_dim": hidden // heads}


def _rope_differences(theirs: Mapping[str, Any], model: ModelConfig) -> Iterator[Difference]:
    there, here = _their_rope(theirs), _our_rope(model)
    for name in dict.fromkeys([*here, *there]):
        if not _same(there.get(name), here.get(name)):
            key = f"model.{name}" if name == "rope_theta" else f"model.rope_scaling.{name}"
            known = name != "partial_rotary_factor"
            yield Difference(field=name, theirs=there.get(name), ours=here.get(name), key=key if known else None)


def _their_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary embedding of a config.json, in the form of `_our_rope`."""
    scaling = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    theta = scaling.get("rope_theta") or config.get("rope_theta") or 10000.0
    part = scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    base = {"rope_theta": theta, "partial_rotary_factor": part}
    if kind == "default":
        return {**base, "rope_type": _ABSENT_ROPE}
    original = scaling.get("original_max_position_embeddings") or config.get("max_position_embeddings")
    shared = {**base, "rope_type": kind, "factor": scaling.get("factor")}
    if kind == "llama3":
        factors = {name: scaling.get(name) for name in ("low_freq_factor", "high_freq_factor")}
        return {**shared, "original_max_position_embeddings": original, **factors}
    if kind == "yarn":
        return {**shared, "original_max_position_embeddings": original, **_their_yarn(scaling)}
    return shared


def _their_yarn(scaling: Mapping[str, Any]) -> dict[str, Any]:
    factor, mscale, all_dim = scaling.get("factor") or 1.0, scaling.get("mscale"), scaling.get("mscale_all_dim")
    # transformers takes the two only together.
    weights = (mscale, all_dim) if mscale and all_dim else (1.0, 0.0)
    return {
        "beta_fast": scaling.get("beta_fast") or 32.0,
        "beta_slow": scaling.get("beta_slow") or 1.0,
        "attention_factor": scaling.get("attention_factor") or _attention_factor(factor, *weights),
    }


def _our_rope(model: ModelConfig) -> dict[str, Any]:
    written = _rope_scaling(model.rope_scaling) or {"rope_type": _ABSENT_ROPE}
    return {"rope_theta": model.rope_theta, "partial_rotary_factor": 1.0, **written}


def _rope_scaling(scaling: RopeScaling) -> dict[str, Any] | None:
    kind = scaling.rope_type
    if kind is None:
        return None
    names: dict[str, tuple[str, ...]] = {
        "linear": (),
        "llama3": ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
        "yarn": ("original_max_position_embeddings", "beta_fast", "beta_slow"),
    }
    written: dict[str, Any] = {"rope_type": kind, "factor": scaling.factor}
    written |= {name: getattr(scaling, name) for name in names[kind]}
    if kind == "yarn":
        written["attention_factor"] = _attention_factor(scaling.factor, scaling.mscale, scaling.mscale_all_dim)
    return written


def _attention_factor(factor: float, mscale: float, mscale_all_dim: float) -> float:
    """Return yarn's factor on cosines and sines (`_compute_yarn_parameters` of transformers)."""
    return (0.1 * mscale * math.log(factor) + 1.0) / (0.1 * mscale_all_dim * math.log(factor) + 1.0)


def _same(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, bool) or isinstance(ours, bool):
        return bool(theirs) == bool(ours)
    if isinstance(theirs, (int, float)) and isinstance(ours, (int, float)):
        return math.isclose(theirs, ours, rel_tol=1e-9)
    return bool(theirs == ours)
