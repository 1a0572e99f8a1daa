"""Gathers what a reading pass finds wrong, up to a number that a person can still read."""

from __future__ import annotations

from typing import Final

from primus_hydra.errors import Problem

_LIMIT: Final = 20


class ProblemLog:
    """Problems in the order they were found; a reader stops early once the log is full."""

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._problems: list[Problem] = []

    def add(self, what: str, *, where: str, hint: str | None = None, key: str = "data.path") -> None:
        """Note one problem; dropped when the log is full."""
        if not self.full:
            self._problems.append(Problem(key=key, what=what, where=where, hint=hint))

    @property
    def full(self) -> bool:
        """Whether looking for more would help nobody."""
        return len(self._problems) >= self._limit

    @property
    def problems(self) -> list[Problem]:
        """What was found, with a last line that says so when the search was cut short."""
        cut = [Problem(what=f"the search stopped after {self._limit} problems; there may be more")] if self.full else []
        return [*self._problems, *cut]
