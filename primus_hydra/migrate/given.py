"""What a recipe gives: values under names, each with the place where it stands; trees of them, and how trees merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union


@dataclass(frozen=True, kw_only=True)
class Given:
    """One value of a recipe. `text` is the text with its `${VAR}` if something was put in for them, else None."""

    value: Any
    where: str
    text: str | None = None


Tree = dict[str, Union[Given, "Tree"]]
"""Names to values or to further names; a list is one value."""


def merged(base: Tree, over: Tree) -> Tree:
    """Return `base` with `over` laid on it: groups merge deeply, everything else is replaced. Neither is changed."""
    result = dict(base)
    for name, value in over.items():
        below = result.get(name)
        result[name] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def without_taken(weak: Tree, taken: Tree) -> tuple[Tree, dict[str, Given]]:
    """Return what of `weak` may join `taken` without changing it, and the leaves that may not.

    A name that both have as a group is looked into.
    """
    free: Tree = {}
    lost: dict[str, Given] = {}
    for name, value in weak.items():
        there = taken.get(name)
        if there is None:
            free[name] = value
        elif isinstance(there, dict) and isinstance(value, dict):
            free[name], deeper = without_taken(value, there)
            lost |= {f"{name}.{key}": given for key, given in deeper.items()}
        else:
            lost |= dict(leaves({name: value}))
    return free, lost


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Given]]:
    """Yield every value under its dotted name; an empty group gives nothing."""
    for name, value in tree.items():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            yield from leaves(value, path)
        else:
            yield path, value


def tree_of(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested dicts for dotted names; a name below a value replaces it."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        node = tree
        *groups, last = name.split(".")
        for group in groups:
            below = node.get(group)
            node[group] = below if isinstance(below, dict) else {}
            node = node[group]
        node[last] = value
    return tree


def text_at(tree: Tree, name: str) -> str | None:
    """Return the value of a name as text; None where it is absent, null or a group."""
    found = tree.get(name)
    return str(found.value) if isinstance(found, Given) and found.value is not None else None
