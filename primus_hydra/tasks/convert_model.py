"""Which model a source of weights is of: its own, where it says so, else the composed one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from primus_hydra.config.build import build
from primus_hydra.config.composed import Composed
from primus_hydra.config.hf_model import read_model
from primus_hydra.config.schema import ModelConfig
from primus_hydra.errors import Problem, raise_all
from primus_hydra.weights.source import KEY, WeightSource

_NO_DIFFERENCE = ("name", "source", "path", "parameters")
"""Keys that say where a model comes from, not what it is."""


def model_of(composed: Composed, source: WeightSource) -> ModelConfig:
    """Return the source's own model where it has one; one that the user names must be the same."""
    theirs = _own_model(source)
    if theirs is None or source.kind == "hf":
        return composed.job.model if theirs is None or _names_model(composed) else theirs
    if _names_model(composed):
        raise_all(list(_differences(theirs, composed.job.model, source)))
        return composed.job.model
    return theirs


def _own_model(source: WeightSource) -> ModelConfig | None:
    if source.model is not None:
        return source.model
    if source.kind != "hf":
        return None
    found = read_model(source.folder)
    raise_all([replace(problem, key=KEY) for problem in found.problems])
    tree: dict[str, Any] = {}
    for dotted, value in found.keys.items():
        *above, last = dotted.split(".")
        node = tree
        for name in above:
            node = node.setdefault(name, {})
        node[last] = value
    model, problems = build(ModelConfig, tree, prefix="model")
    raise_all(problems)
    return model


def _names_model(composed: Composed) -> bool:
    """Whether the command line chooses a model or changes one."""
    keys = [override.partition("=")[0].lstrip("+~") for override in composed.overrides]
    return any(name in ("model", "experiment") or name.startswith("model.") for name in keys)


def _differences(theirs: ModelConfig, ours: ModelConfig, source: WeightSource) -> Iterator[Problem]:
    for item in fields(ModelConfig):
        there, here = getattr(theirs, item.name), getattr(ours, item.name)
        if item.name not in _NO_DIFFERENCE and there != here:
            what = f"it is {there} in the source, and {here} here"
            hint = "leave the model out of the command: the source's own is taken"
            yield Problem(key=f"model.{item.name}", what=what, where=str(source.folder), hint=hint)
