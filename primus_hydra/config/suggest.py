"""Nearest valid names for a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str], *, limit: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the candidates closest to `name`, best first; a difference of case alone counts as closest."""
    names = list(dict.fromkeys(candidates))
    same_but_case = [candidate for candidate in names if candidate.lower() == name.lower() and candidate != name]
    close = difflib.get_close_matches(name, names, n=limit, cutoff=cutoff)
    return list(dict.fromkeys(same_but_case + close))[:limit]


def did_you_mean(name: str, candidates: Iterable[str], *, limit: int = 3) -> str | None:
    """Return the sentence `did you mean ...?`, or None when nothing is close."""
    names = nearest(name, candidates, limit=limit)
    return f"did you mean {' or '.join(names)}?" if names else None
