"""Gathers what a reading pass finds wrong: few problems that a person can still read, or a tally of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from primus_hydra.errors import Problem

_LIMIT: Final = 20
_KEPT: Final = 10_000


class ProblemLog:
    """Problems in the order they were found; a reader stops early once the log is full.

    `lines` counts the lines that readers of line-based files have gone through.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._problems: list[Problem] = []
        self.lines = 0

    def add(
        self, what: str, *, where: str, line: int | None = None, hint: str | None = None, key: str = "data.path"
    ) -> None:
        """Note one problem; dropped when the log is full. `line` counts from 1."""
        if not self.full:
            place = where if line is None else f"{where}:{line}"
            self._problems.append(Problem(key=key, what=what, where=place, hint=hint))

    @property
    def full(self) -> bool:
        """Whether looking for more would help nobody."""
        return len(self._problems) >= self._limit

    @property
    def problems(self) -> list[Problem]:
        """What was found, with a last line that says so when the search was cut short."""
        cut = [Problem(what=f"the search stopped after {self._limit} problems; there may be more")] if self.full else []
        return [*self._problems, *cut]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A record that cannot be used, or (without `line`) what is wrong with a file; `line` counts from 1."""

    file: str
    line: int | None
    reason: str
    hint: str | None = None

    def as_problem(self) -> Problem:
        """Say it as one of the user's problems."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return Problem(key="data.path", what=self.reason, where=place, hint=self.hint)


class FaultTally(ProblemLog):
    """Counts everything and stops no reader; the first ones are kept for a list."""

    def __init__(self, kept: int = _KEPT) -> None:
        super().__init__()
        self._kept = kept
        self.count = 0
        self.faults: list[Fault] = []

    def add(
        self, what: str, *, where: str, line: int | None = None, hint: str | None = None, key: str = "data.path"
    ) -> None:
        """Count one problem."""
        del key
        self.count += 1
        if len(self.faults) < self._kept:
            self.faults.append(Fault(file=where, line=line, reason=what, hint=hint))

    @property
    def full(self) -> bool:
        """Never: all of them are counted."""
        return False
