"""The identity of a run: its name, and the values that determine the training.

The same command is the same run. What does not determine the training (where it runs, what watches it, how often it is
saved) stays out, so that it may change between attempts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from primus_hydra.config.build import defaults_of
from primus_hydra.config.resolve import flatten
from primus_hydra.config.schema import JobConfig

NOT_DETERMINING = frozenset(
    {
        *("launch", "network", "platform", "hooks", "env"),
        *("tracker", "metrics", "profiler", "checkpoint"),
        *("task", "resume", "run"),
    }
)
_MISSING = object()


def determining(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves that determine the training and differ from the schema's defaults, by dotted name."""
    defaults = flatten(defaults_of(JobConfig))
    return {
        leaf: value
        for leaf, value in sorted(flatten(tree).items())
        if leaf.split(".")[0] not in NOT_DETERMINING and value != defaults.get(leaf, _MISSING)
    }


def default_name(tree: Mapping[str, Any]) -> str:
    """Return `model-module-hash`; equal for equal training."""
    return f"{tree['model']['name']}-{tree['module']}-{short_hash(determining(tree))}"


def sweep_name(training: Mapping[str, Any] | Sequence[str], swept: Sequence[str]) -> str:
    """Return the name of a sweep that was given none: of its swept keys, and of the training without their values.

    `training` is the resolved tree of the command without what it sweeps; the words of the command where that makes no
    tree. Another value of a swept key leaves the name as it is, so that a sweep can be extended.
    """
    keys = sorted({key.lstrip("+") for key in swept})
    if not isinstance(training, Mapping):
        return f"sweep-{short_hash([list(training), keys])}"
    names = [str(name) for group, name in _named(training) if group not in keys]
    return "-".join([*names, "sweep", short_hash([determining(training), keys])])


def _named(tree: Mapping[str, Any]) -> list[tuple[str, Any]]:
    model = tree.get("model")
    return [("model", model.get("name") if isinstance(model, Mapping) else None), ("module", tree.get("module"))]


def point_name(swept: Sequence[str]) -> str:
    """Return the name of a sweep's point below its run: a hash of its swept overrides."""
    return short_hash(sorted(swept))


def short_hash(value: object) -> str:
    """Return eight hex digits that identify plain data."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return blake2b(text.encode(), digest_size=4).hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the determining leaves whose values differ between two resolved trees, as (old, new)."""
    defaults = flatten(defaults_of(JobConfig))
    before, after = determining(old), determining(new)
    return {
        leaf: (before.get(leaf, defaults.get(leaf)), after.get(leaf, defaults.get(leaf)))
        for leaf in sorted({*before, *after})
        if before.get(leaf, defaults.get(leaf)) != after.get(leaf, defaults.get(leaf))
    }
