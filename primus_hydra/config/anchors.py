"""Paths as typed, made absolute: every rank, on every node, then means the same file that the user meant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

PATH_KEYS: Final = ("data.path", "tokenizer.path", "init_from", "backend.path", "run.dir")


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
            node[name] = _anchored(node[name], folder)
    return anchored


def _anchored(value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return [_anchored(item, folder) for item in value]
    if not isinstance(value, str) or not value:
        return value
    try:
        return str(folder / Path(value).expanduser())
    except RuntimeError:  # ~name of a user whom this machine does not know
        return value
