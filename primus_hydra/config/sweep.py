"""A `--multirun` command line, expanded with Hydra's own grammar to the points it means; no sweeper is entered."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.errors import HydraException

from primus_hydra.config.keys import facts_of
from primus_hydra.config.overrides import spell_value
from primus_hydra.errors import Problem, UserError


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One job of a sweep: all its overrides, and those among them that the sweep varies."""

    overrides: tuple[str, ...]
    swept: tuple[str, ...]


def expand_sweep(overrides: Sequence[str]) -> list[SweepPoint]:
    """Return the product of all swept values, in the order of the command line.

    Raises UserError for a sweep over an interval, which only a sweeper can sample.
    """
    axes = [_axis(override) for override in overrides]
    points = []
    for chosen in itertools.product(*axes):
        swept = tuple(value for value, axis in zip(chosen, axes, strict=True) if len(axis) > 1)
        points.append(SweepPoint(overrides=tuple(chosen), swept=swept))
    return points


def _axis(override: str) -> list[str]:
    parsed = _parse(override)
    if parsed is None or not parsed.is_sweep_override():
        return [override]
    if not parsed.is_discrete_sweep():
        raise UserError(
            Problem(
                key=parsed.key_or_group,
                what="a continuous sweep needs a sweeper",
                hint="list values, or choose hydra/sweeper=...",
            )
        )
    key = parsed.get_key_element()
    return [f"{key}={value}" for value in parsed.sweep_string_iterator()]


def _parse(override: str) -> HydraOverride | None:
    """Parse one override, its text quoted as typed; None for one that the composition will refuse anyway."""
    key, equals, value = override.partition("=")
    spelled = f"{key}={spell_value(value, facts_of(key.lstrip('+')), multirun=True)}" if equals else override
    try:
        return OverridesParser.create().parse_override(spelled)
    except HydraException:
        return None
