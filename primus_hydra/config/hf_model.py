"""`model=hf model.path=DIR`: the neutral model of any Hugging Face config.json of a known family.

A field that changes the network and that no neutral model has is refused by name, as is a family that is not known.
Only the file is read: neither `transformers` nor the hub.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast, get_args

from primus_hydra.config.families import FAMILIES
from primus_hydra.config.hf_families import HF_FAMILIES, NEEDED, SPELLINGS, WITHOUT_EFFECT, HfFamily
from primus_hydra.config.hf_rope import ABSENT, KINDS, neutral_rope, their_rope, unknown_words
from primus_hydra.config.schema.model import Architecture
from primus_hydra.errors import Problem

CONFIG_FILE: Final = "config.json"
KEY: Final = "model.path"
_HEAD_WIDTH: Final = "head_dim"


@dataclass(frozen=True, kw_only=True)
class HfModel:
    """The neutral keys that a config.json sets (dotted, below `model`), and what stands against it."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_model(path: Path) -> HfModel:
    """Read the config.json of a folder, or the file itself; never raises for what lies there."""
    file = path if path.suffix == ".json" else path / CONFIG_FILE
    try:
        stamp = file.stat().st_mtime_ns
    except OSError:
        hint = f"give the folder of a model, or its {CONFIG_FILE}; looked in {Path.cwd()}"
        return HfModel(problems=(Problem(key=KEY, what=f"there is no file {file}", hint=hint),))
    return _read(file.absolute(), stamp)


def neutral_model(config: Mapping[str, Any], *, where: str) -> HfModel:
    """Translate a config.json; `where` names it in problems."""
    name = config.get("model_type")
    if name not in get_args(Architecture):
        hint = f"known: {', '.join(HF_FAMILIES)}"
        what = f"model_type {name} is no family that a model can have here" if name else "it has no model_type"
        return HfModel(problems=(Problem(key=KEY, what=what, where=where, hint=hint),))
    family = HF_FAMILIES[cast(Architecture, name)]
    problems = [Problem(key=KEY, what=what, where=where, hint=hint) for what, hint in _doubts(config, family)]
    keys = _keys(config, cast(Architecture, name), family) if not problems else {}
    return HfModel(keys=keys, problems=tuple(problems))


def their_values(config: Mapping[str, Any], family: HfFamily) -> dict[str, Any]:
    """Return what each named field of config.json says, with the defaults of its class; None where nothing does."""
    given = {name: _given(config, name) for name in family.names}
    values = {name: family.defaults.get(name) if value is None else value for name, value in given.items()}
    hidden, heads = values.get("hidden_size"), values.get("num_attention_heads")
    if "num_key_value_heads" in config and config["num_key_value_heads"] is None:
        values["num_key_value_heads"] = heads
    if config.get("model_type") == "deepseek_v2" and (config.get("topk_method") or "greedy") == "greedy":
        values["topk_group"] = values["n_group"]  # no group is left out
    # A null where null has a meaning of its own.
    values |= {name: None for name in ("q_lora_rank", "sliding_window") if name in config and config[name] is None}
    if not (isinstance(hidden, int) and isinstance(heads, int) and heads):
        return values
    derived = {"num_key_value_heads": heads, _HEAD_WIDTH: hidden // heads}
    return values | {name: size for name, size in derived.items() if name in values and values[name] is None}


def _given(config: Mapping[str, Any], name: str) -> Any:
    """Return what a field says under either of its names, or None."""
    value = config.get(name)
    return config.get(SPELLINGS.get(name, name)) if value is None else value


@lru_cache(maxsize=32)
def _read(file: Path, stamp: int) -> HfModel:
    del stamp  # a file that was changed is read again
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return HfModel(problems=(Problem(key=KEY, what=f"cannot be read as JSON: {error}", where=str(file)),))
    if not isinstance(config, dict):
        return HfModel(problems=(Problem(key=KEY, what="is not a JSON object", where=str(file)),))
    found = neutral_model(config, where=str(file))
    name = re.sub(r"[^\w.-]+", "_", file.parent.name) or "hf"
    return HfModel(keys={**found.keys, "name": name, "source": str(file)}, problems=found.problems)


def _keys(config: Mapping[str, Any], name: Architecture, family: HfFamily) -> dict[str, Any]:
    values = their_values(config, family)
    keys = {key: values[theirs] for theirs, key in family.names.items()}
    keys |= {"architecture": name, **FAMILIES[name].fixed, **neutral_rope(config, name)}
    if name == "deepseek_v3":
        keys["scoring_func"] = "sigmoid"
    if name == "qwen3_moe":
        keys["first_k_dense_replace"] = dense_layers(config)
    if name == "llama4_text":
        keys["attn_temperature_tuning"] = bool(keys["attn_temperature_tuning"])  # published as 4
    return keys


def dense_layers(config: Mapping[str, Any]) -> int:
    """Return how many of the first layers of a Qwen3-MoE are dense."""
    return len(config.get("mlp_only_layers") or ())


def _doubts(config: Mapping[str, Any], family: HfFamily) -> Iterator[tuple[str, str | None]]:
    """Yield what is wrong and how to mend it."""
    for name in NEEDED:
        if config.get(name) is None:
            yield f"{name} is missing", None
    no_model = "no model here is like that"
    if config.get("quantization_config"):
        yield "its weights are quantized (quantization_config)", "take the folder of the weights before quantization"
    for name, value in family.fixed.items():
        there = config.get(name)
        if there is not None and there != value:
            yield f"{name} is {there}, and can only be {value}", no_model
    for name, words in strange_patterns(config).items():
        yield f"{name} {words}", no_model
    yield from ((what, no_model) for what in _rope_doubts(config))
    yield from ((what, "take it out of a copy of the file if it has no effect") for what in _unknown(config, family))


def strange_patterns(config: Mapping[str, Any]) -> dict[str, str]:
    """Return, by field, which lists over layers say something else than the family's own rule."""
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int):
        return {}
    found = {}
    dense = config.get("mlp_only_layers")
    if dense and list(dense) != list(range(len(dense))):
        found["mlp_only_layers"] = f"is {dense}, which are not the first layers"
    for name, rule in _rules(config, layers).items():
        given = config.get(name)
        if given is not None and list(given) != rule:
            found[name] = "has another pattern than the one of its family"
    return found


def _rules(config: Mapping[str, Any], layers: int) -> dict[str, list[Any]]:
    name = config.get("model_type")
    if name == "gpt_oss":
        return {"layer_types": [("sliding_attention", "full_attention")[layer % 2] for layer in range(layers)]}
    if name != "llama4_text":
        return {"layer_types": ["full_attention"] * layers}
    every, step = config.get("no_rope_layer_interval") or 4, config.get("interleave_moe_layer_step") or 1
    turned = [int((layer + 1) % every != 0) for layer in range(layers)]
    chunked = "chunked_attention" if config.get("attention_chunk_size", 8192) else "full_attention"
    return {
        "no_rope_layers": turned,
        "layer_types": [chunked if turns else "full_attention" for turns in turned],
        "moe_layers": list(range(step - 1, layers, step)),
    }


def _rope_doubts(config: Mapping[str, Any]) -> Iterator[str]:
    found = their_rope(config, str(config.get("model_type")))
    if found["rope_type"] not in (ABSENT, *KINDS):
        yield f"rope_type is {found['rope_type']}, and can be {', '.join(KINDS)} or none"
    if found["partial_rotary_factor"] != 1.0:
        yield f"partial_rotary_factor is {found['partial_rotary_factor']}, and can only be 1"
    for word in unknown_words(config):
        yield f"the rotary embedding has {word}, which is not known here"


def _unknown(config: Mapping[str, Any], family: HfFamily) -> Iterator[str]:
    lists = {"layer_types", "no_rope_layers", "moe_layers", "mlp_only_layers"}
    # What other families read, this one does not: a width that latent attention has no use for, a window that is off.
    unread = {_HEAD_WIDTH, "sliding_window", "topk_method", "seq_aux", "aux_loss_alpha", "scoring_func"}
    spelled = {SPELLINGS.get(name, name) for name in family.names}
    known = {*family.names, *spelled, *family.fixed, *WITHOUT_EFFECT, *lists, *unread, "quantization_config"}
    for name, value in config.items():
        if name not in known and value not in (None, False, [], {}):
            yield f"{name}={value} is not known here, and may change the network"
