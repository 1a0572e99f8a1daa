"""Native keys that a neutral key owns: setting one would leave two truths, so each is refused with its neutral name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_hydra.errors import Problem
from primus_hydra.native.check import PREFIX, TARGET


def without_owned(config: Mapping[str, Any], owned: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Split off the keys that a neutral key owns: return the other keys, and a problem for each owned one.

    `owned` maps a dotted path below `backend.config` to its neutral key; a path owns everything below it.
    """
    problems: list[Problem] = []
    return _without_owned(config, owned, "", problems), problems


def _without_owned(
    tree: Mapping[str, Any], owned: Mapping[str, str], path: str, problems: list[Problem]
) -> dict[str, Any]:
    free: dict[str, Any] = {}
    for key, value in tree.items():
        here = f"{path}.{key}" if path else str(key)
        owner = owned.get(here)
        if owner:
            problems.append(Problem(key=f"{PREFIX}.{here}", what="has a neutral key", hint=f"set {owner}"))
        elif isinstance(value, Mapping) and key != TARGET:
            free[str(key)] = _without_owned(value, owned, here, problems)
        else:
            free[str(key)] = value
    return free
