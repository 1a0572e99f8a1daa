"""The jobs of a sweep, composed: all points, or every mistake of the command line and of the points at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from primus_hydra.config.compose import Request, compose, spell_for_hydra
from primus_hydra.config.composed import Composed
from primus_hydra.config.overrides import place_of
from primus_hydra.config.sweep import SweepPoint, expand_sweep
from primus_hydra.errors import Problem, UserError, raise_all


def compose_points(request: Request) -> list[Composed]:
    """Compose every point of a `--multirun` request; raises UserError with all problems, and the points that have them.

    A mistake that all points share is told once.
    """
    spell_for_hydra(dataclasses.replace(request, multirun=True))
    found: dict[Problem, list[str]] = {}
    composed = []
    for point in expand_sweep(request.overrides):
        try:
            composed.append(_compose(request, point))
        except UserError as error:
            for problem in error.problems:
                found.setdefault(_as_typed(problem, point, request.overrides), []).append(", ".join(point.swept))
    raise_all([_labelled(problem, points) for problem, points in found.items()])
    return composed


def _compose(request: Request, point: SweepPoint) -> Composed:
    return compose(dataclasses.replace(request, overrides=list(point.overrides), swept=point.swept, multirun=False))


def _as_typed(problem: Problem, point: SweepPoint, typed: Sequence[str]) -> Problem:
    """Return the problem with the override as it was typed, not as the point has it."""
    for position, (override, whole) in enumerate(zip(point.overrides, typed, strict=True), start=1):
        if problem.where == place_of(position, override):
            return dataclasses.replace(problem, where=place_of(position, whole))
    return problem


def _labelled(problem: Problem, points: list[str]) -> Problem:
    more = f" and {len(points) - 1} more" if len(points) > 1 else ""
    return dataclasses.replace(problem, what=f"{problem.what} (point {points[0]}{more})") if points[0] else problem
