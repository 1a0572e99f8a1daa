"""The jobs of a sweep, composed: all points, or every mistake of the command line and of the points at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from primus_hydra.config.compose import Request, compose, loose_tree, spell_for_hydra, sweeper_of
from primus_hydra.config.composed import Composed
from primus_hydra.config.foundation import Foundations
from primus_hydra.config.identity import sweep_name
from primus_hydra.config.overrides import place_of
from primus_hydra.config.sweep import SweepPoint, expand_sweep, fixed_and_swept, job_words, sampled_point
from primus_hydra.errors import Problem, UserError, raise_all

BASIC = "basic"
"""The sweeper that lists the product of all values: the command does that itself."""


class Points:
    """The points of one `--multirun` request. What they share is read once, and all have the name of one sweep."""

    def __init__(self, request: Request) -> None:
        self._typed = list(request.overrides)
        self._request = dataclasses.replace(request, overrides=job_words(request.overrides), multirun=False)
        self._foundations = Foundations()
        self._name: str | None = None

    def all(self) -> list[Composed]:
        """Compose every point; raises UserError with all problems, and the points that have them.

        A mistake that all points share is told once.
        """
        spell_for_hydra(dataclasses.replace(self._request, multirun=True))
        found: dict[Problem, list[str]] = {}
        composed = []
        for point in expand_sweep(self._request.overrides):
            try:
                composed.append(self._compose(point))
            except UserError as error:
                for problem in error.problems:
                    told = _as_typed(problem, point, self._request.overrides)
                    found.setdefault(told, []).append(", ".join(point.swept))
        raise_all([_labelled(problem, points) for problem, points in found.items()])
        return composed

    def sampled(self, overrides: Sequence[str]) -> Composed:
        """Compose the point that a sweeper chose; raises UserError with what is wrong with it."""
        return self._compose(sampled_point(self._request.overrides, overrides))

    def shared_tree(self) -> dict[str, Any]:
        """Return the tree of the command without what it sweeps, which need be no job; raises UserError for none."""
        return loose_tree(self._fixed(), self._foundations)

    def sweeper(self) -> str:
        """Return the sweeper that the command or its experiment chooses; `basic` where nothing can be composed."""
        typed = [word.partition("=")[2] for word in self._typed if word.startswith("hydra/sweeper=")]
        if typed:
            return typed[-1]
        try:
            return sweeper_of(self._fixed(), self._foundations)
        except UserError:  # whoever composes the points tells it
            return BASIC

    def name(self) -> str:
        """Return the name of the sweep where the job gives none."""
        if self._name is None:
            words, swept = fixed_and_swept(self._request.overrides)
            try:
                self._name = sweep_name(self.shared_tree(), swept)
            except UserError:  # a point may be sound all the same
                self._name = sweep_name(words, swept)
        return self._name

    def _fixed(self) -> Request:
        return dataclasses.replace(self._request, overrides=fixed_and_swept(self._request.overrides)[0])

    def _compose(self, point: SweepPoint) -> Composed:
        sweep = self.name() if point.swept else None
        words = list(point.overrides)
        return compose(
            dataclasses.replace(self._request, overrides=words, swept=point.swept, sweep=sweep), self._foundations
        )


def _as_typed(problem: Problem, point: SweepPoint, typed: Sequence[str]) -> Problem:
    """Return the problem with the override as it was typed, not as the point has it."""
    for position, (override, whole) in enumerate(zip(point.overrides, typed, strict=True), start=1):
        if problem.where == place_of(position, override):
            return dataclasses.replace(problem, where=place_of(position, whole))
    return problem


def _labelled(problem: Problem, points: list[str]) -> Problem:
    more = f" and {len(points) - 1} more" if len(points) > 1 else ""
    return dataclasses.replace(problem, what=f"{problem.what} (point {points[0]}{more})") if points[0] else problem
