"""Nearest valid names for a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from primus_hydra.config.renames import RENAMES

_CLEARLY_BETTER = 0.12
"""How much closer the best name must be than another one for that other not to be named."""


def nearest(name: str, candidates: Iterable[str], *, limit: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the candidates closest to `name`, best first; a difference of case alone counts as closest."""
    names = list(dict.fromkeys(candidates))
    same_but_case = [candidate for candidate in names if candidate.lower() == name.lower() and candidate != name]
    if same_but_case:
        return same_but_case[:limit]
    close = difflib.get_close_matches(name, names, n=limit, cutoff=cutoff)
    best = _ratio(name, close[0]) if close else 0.0
    return [candidate for candidate in close if _ratio(name, candidate) > best - _CLEARLY_BETTER]


def did_you_mean(name: str, candidates: Iterable[str], *, limit: int = 3) -> str | None:
    """Return the sentence `did you mean ...?`, or None when nothing is close."""
    return _question(nearest(name, candidates, limit=limit))


def renamed(name: str) -> str | None:
    """Return the sentence that gives the key here for a name as people bring it from other launchers, or None."""
    here = RENAMES.get(name)
    return None if here is None else f"{name} is called {here} here"


def key_hint(key: str, keys: Sequence[str], groups: Sequence[str] = ()) -> str | None:
    """Return the sentence that mends a key that does not exist: its name here, or the nearest names."""
    plain = key.replace("-", "_").lower()
    return (
        renamed(plain)
        or _question(_near_by(key, keys, groups))
        or renamed(plain.rpartition(".")[2])
        or _question(_by_leaf(plain.rpartition(".")[2], keys))
    )


def _near_by(key: str, keys: Sequence[str], groups: Sequence[str]) -> list[str]:
    """Return the names that differ in case or little else, at the place where the key was looked for."""
    spelled = [name for name in [*keys, *groups] if name.lower() == key.lower().replace("-", "_")]
    parent, _, leaf = key.rpartition(".")
    nodes = {".".join(name.split(".")[:depth]) for name in keys for depth in range(1, name.count(".") + 1)}
    if spelled or not parent:
        top = [name for name in (*groups, *sorted(nodes), *keys) if "." not in name]
        return spelled or nearest(leaf, top, cutoff=0.75)
    if parent not in nodes:
        parent = next(iter(nearest(parent, sorted(nodes), limit=1, cutoff=0.75)), "")
    inside = _children(parent, keys) if parent else []
    return [f"{parent}.{name}" for name in ([leaf] if leaf in inside else nearest(leaf, inside, cutoff=0.7))]


def _children(parent: str, keys: Sequence[str]) -> list[str]:
    below = (name[len(parent) + 1 :] for name in keys if name.startswith(f"{parent}."))
    return list(dict.fromkeys(name.split(".")[0] for name in below))


def _by_leaf(leaf: str, keys: Sequence[str]) -> list[str]:
    same = [name for name in keys if name.rpartition(".")[2] == leaf]
    if same:
        return same[:3]
    leaves = {name.rpartition(".")[2]: name for name in reversed(keys)}
    return [leaves[name] for name in nearest(leaf, leaves, cutoff=0.8)]


def _question(names: Sequence[str]) -> str | None:
    return f"did you mean {' or '.join(names)}?" if names else None


def _ratio(name: str, candidate: str) -> float:
    return difflib.SequenceMatcher(None, candidate, name).ratio()
