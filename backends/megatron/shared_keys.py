"""Keys that several of Megatron's own dataclasses have: each is set once, in the first section that has it.

Which keys these are is read from the classes, so a new version of Megatron needs no list. A value set at its home goes
to every section that has the field; setting it elsewhere is refused, as two values would leave two truths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_hydra.errors import Problem
from primus_hydra.native.check import PREFIX
from primus_hydra.native.describe import Node, only_code

SECTIONS = ("transformer", "optimizer", "ddp", "dataset")
"""The sections that hold a dataclass of Megatron; the first one that has a key is its home."""


def homes(fields: Mapping[str, Mapping[str, Node]]) -> dict[str, str]:
    """Return where each shared key is set: {"optimizer.bf16": "transformer.bf16"}; `fields` are those of a section."""
    found: dict[str, str] = {}
    first: dict[str, str] = {}
    for section in SECTIONS:
        for key, node in fields.get(section, {}).items():
            if key in first:
                found[f"{section}.{key}"] = f"{first[key]}.{key}"
            elif not only_code(node):
                first[key] = section
    return found


def without_shared(
    tree: Mapping[str, Any], homes: Mapping[str, str], owners: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """Split off the keys that are set in another section: return the other keys, and a problem for each of these.

    `owners` gives the neutral key of a home that may not be set either.
    """
    free: dict[str, Any] = {}
    problems: list[Problem] = []
    for section, keys in tree.items():
        if not isinstance(keys, Mapping):
            free[section] = keys
            continue
        free[section] = {key: value for key, value in keys.items() if f"{section}.{key}" not in homes}
        for path in (f"{section}.{key}" for key in keys if f"{section}.{key}" in homes):
            home = homes[path]
            what = f"is set once for all of Megatron's classes, in {home.partition('.')[0]}"
            hint = f"set {owners.get(home, f'{PREFIX}.{home}')}"
            problems.append(Problem(key=f"{PREFIX}.{path}", what=what, hint=hint))
    return free, problems


def spread(tree: Mapping[str, Mapping[str, Any]], homes: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the tree with each value that is set at its home in every section that shares the key."""
    full = {section: dict(keys) for section, keys in tree.items()}
    for path, home in homes.items():
        (section, key), at_home = path.split("."), tree.get(home.partition(".")[0], {})
        if key in at_home:
            full.setdefault(section, {})[key] = at_home[key]
    return full
