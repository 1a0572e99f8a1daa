"""Rotary positions in a Hugging Face config.json: its forms, old and new, and the neutral keys, in both directions.

Written in the form that `transformers` reads from 4.45 on and 5 turns into its own: `rope_theta` and `rope_scaling`
side by side. Both forms are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from primus_hydra.config.schema.model import Architecture, ModelConfig, RopeScaling

ABSENT: Final = "none"
"""What stands for a rotary embedding without scaling."""
_THETA: Final[Mapping[str, float]] = {"mixtral": 1e6, "gpt_oss": 150000.0, "llama4_text": 500000.0}
"""`default_theta` of the classes of `transformers` 5.24 that have one of their own."""
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "linear": (),
    "llama3": ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "yarn": ("original_max_position_embeddings", "beta_fast", "beta_slow", "truncate"),
}
KINDS: Final = tuple(_NAMES)
"""Kinds of scaling that a neutral model can have."""
_UNUSED: Final = frozenset({"finetuned", "extrapolation_factor", "attn_factor"})
_READ: Final = frozenset(
    {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "attention_factor", "mscale"}
    | {"mscale_all_dim", *(name for names in _NAMES.values() for name in names)}
)


def rope_scaling(scaling: RopeScaling) -> dict[str, Any] | None:
    """Return the `rope_scaling` of config.json, or None without scaling."""
    kind = scaling.rope_type
    if kind is None:
        return None
    written: dict[str, Any] = {"rope_type": kind, "factor": scaling.factor}
    written |= {name: getattr(scaling, name) for name in _NAMES[kind]}
    if kind == "yarn":
        written["attention_factor"] = attention_factor(scaling.factor, scaling.mscale, scaling.mscale_all_dim)
        if scaling.mscale_all_dim:  # DeepSeek's softmax scale is made of it
            written |= {"mscale": scaling.mscale, "mscale_all_dim": scaling.mscale_all_dim}
    return written


def our_rope(model: ModelConfig) -> dict[str, Any]:
    """Return the rotary embedding of a neutral model in the form of `their_rope`."""
    written = rope_scaling(model.rope_scaling) or {"rope_type": ABSENT}
    written.pop("mscale", None)
    return {"rope_theta": model.rope_theta, "partial_rotary_factor": 1.0, **written}


def their_rope(config: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Return the rotary embedding that a config.json describes: what decides the positions, and nothing else."""
    scaling = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    theta = scaling.get("rope_theta") or config.get("rope_theta") or _THETA.get(family, 10000.0)
    part = scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    base = {"rope_theta": theta, "partial_rotary_factor": part}
    if kind == "default":
        return {**base, "rope_type": ABSENT}
    original = scaling.get("original_max_position_embeddings") or config.get("max_position_embeddings")
    shared = {**base, "rope_type": kind, "factor": scaling.get("factor")}
    if kind == "llama3":
        factors = {name: scaling.get(name) for name in ("low_freq_factor", "high_freq_factor")}
        return {**shared, "original_max_position_embeddings": original, **factors}
    if kind == "yarn":
        return {**shared, "original_max_position_embeddings": original, **_their_yarn(scaling)}
    return shared


def unknown_words(config: Mapping[str, Any]) -> list[str]:
    """Return the fields of a config.json's scaling that no neutral model can have."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return [str(name) for name, value in scaling.items() if name not in _READ | _UNUSED and value is not None]


def neutral_rope(config: Mapping[str, Any], family: Architecture) -> dict[str, Any]:
    """Return the neutral keys of a config.json's rotary embedding, by dotted name below `model`."""
    found = their_rope(config, family)
    kind = found["rope_type"]
    if kind not in KINDS:
        return {"rope_theta": found["rope_theta"]}
    keys: dict[str, Any] = {"rope_theta": found["rope_theta"], "rope_scaling.rope_type": kind}
    keys |= {f"rope_scaling.{name}": found[name] for name in ("factor", *_NAMES[kind])}
    if kind == "yarn":
        mscale, all_dim = _temperature(float(found["factor"] or 1.0), found)
        keys |= {"rope_scaling.mscale": mscale, "rope_scaling.mscale_all_dim": all_dim}
    return keys


def attention_factor(factor: float, mscale: float, mscale_all_dim: float) -> float:
    """Return yarn's factor on cosines and sines (`_compute_yarn_parameters` of transformers)."""
    return (0.1 * mscale * math.log(factor) + 1.0) / (0.1 * mscale_all_dim * math.log(factor) + 1.0)


def _their_yarn(scaling: Mapping[str, Any]) -> dict[str, Any]:
    factor, mscale, all_dim = scaling.get("factor") or 1.0, scaling.get("mscale"), scaling.get("mscale_all_dim")
    # transformers takes the two only together.
    weights = (mscale, all_dim) if mscale and all_dim else (1.0, 0.0)
    cut = scaling.get("truncate")
    return {
        "beta_fast": scaling.get("beta_fast") or 32.0,
        "beta_slow": scaling.get("beta_slow") or 1.0,
        "truncate": True if cut is None else cut,
        "attention_factor": scaling.get("attention_factor") or attention_factor(factor, *weights),
        **({"mscale_all_dim": all_dim} if mscale and all_dim else {}),
    }


def _temperature(factor: float, found: Mapping[str, Any]) -> tuple[float, float]:
    """Return `mscale` and `mscale_all_dim` that give the attention factor which was found."""
    all_dim = float(found.get("mscale_all_dim") or 0.0)
    if factor <= 1.0:
        return 1.0, all_dim
    wanted = float(found["attention_factor"]) * (0.1 * all_dim * math.log(factor) + 1.0)
    return round((wanted - 1.0) / (0.1 * math.log(factor)), 12), all_dim
