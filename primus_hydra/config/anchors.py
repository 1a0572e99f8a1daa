"""Paths as typed, made absolute: every rank, on every node, then means the same file that the user meant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from primus_hydra.config.init_from import split_prefix

INIT_FROM: Final = "init_from"
PATH_KEYS: Final = (
    "model.path",
    "data.path",
    "data.validation_path",
    "tokenizer.path",
    INIT_FROM,
    "backend.path",
    "run.dir",
)
_BLENDED: Final = ("megatron", "stream")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def anchor_paths(tree: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the tree with its path keys absolute: relative ones count from `folder`, and ~ is the user's home."""
    anchored: dict[str, Any] = dict(tree)
    for key in PATH_KEYS:
        *parents, name = key.split(".")
        node = anchored
        for parent in parents:
            below = node.get(parent)
            node[parent] = dict(below) if isinstance(below, Mapping) else below
            node = node[parent] if isinstance(node[parent], dict) else {}
        if name in node:
            anchor = _anchored_weights if key == INIT_FROM else _anchored
            if key.startswith("data.") and node.get("kind") in _BLENDED:
                anchor = _anchored_blend
            node[name] = anchor(node[name], folder)
    if isinstance(anchored.get("hooks"), Mapping):
        anchored["hooks"] = {phase: _anchored_hooks(entries, folder) for phase, entries in anchored["hooks"].items()}
    return anchored


def is_weight(item: object) -> bool:
    """Whether an item of a blend is the weight of the prefix after it: a number, also one written as text."""
    if isinstance(item, str):
        return _NUMBER.fullmatch(item) is not None
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def _anchored_blend(value: Any, folder: Path) -> Any:
    if not isinstance(value, list):
        return _anchored(value, folder)
    return [item if is_weight(item) else _anchored(item, folder) for item in value]


def _anchored_hooks(value: Any, folder: Path) -> Any:
    if not isinstance(value, list):
        return value
    return [
        {**entry, "script": _anchored(entry["script"], folder)}
        if isinstance(entry, Mapping) and isinstance(entry.get("script"), str)
        else entry
        for entry in value
    ]


def _anchored_weights(value: Any, folder: Path) -> Any:
    if not isinstance(value, str):
        return value
    prefix, path = split_prefix(value)
    return f"{prefix}{_anchored(path, folder)}"


def _anchored(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_anchored(item, folder) for item in value]
    if not isinstance(value, str) or not value:
        return value
    try:
        return str(folder / Path(value).expanduser())
    except RuntimeError:  # ~name of a user whom this machine does not know
        return value
