"""A `--multirun` command line, expanded with Hydra's own grammar to the points it means; no sweeper is entered."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.override_parser.types import Override as HydraOverride
from hydra.core.override_parser.types import QuotedString, ValueType

from primus_hydra.config.composed import Composed
from primus_hydra.config.grammar import GrammarError, parse
from primus_hydra.config.keys import facts_of
from primus_hydra.config.layout import layout_of
from primus_hydra.config.loader import new_loader
from primus_hydra.config.overrides import place_of, spell_value
from primus_hydra.config.quoting import quote
from primus_hydra.errors import Problem, raise_all

_OF_THE_SWEEP = ("hydra/sweeper", "hydra.sweeper", "hydra.sweep.")


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One job of a sweep: all its overrides, and those among them that the sweep varies."""

    overrides: tuple[str, ...]
    swept: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SkippedPoint:
    """A point of a sweep whose parallel sizes fit neither the model nor the machine, and why."""

    point: Composed
    problems: tuple[Problem, ...]


def expand_sweep(overrides: Sequence[str]) -> list[SweepPoint]:
    """Return the product of all swept values, in the order of the command line.

    Raises UserError with every sweep that cannot be listed: an interval, which only a sweeper can sample, or a pattern
    that no option matches.
    """
    problems: list[Problem] = []
    axes = [_axis(override, place_of(position, override), problems) for position, override in enumerate(overrides, 1)]
    raise_all(problems)
    points = []
    for chosen in itertools.product(*axes):
        swept = tuple(value for value, axis in zip(chosen, axes, strict=True) if len(axis) > 1)
        points.append(SweepPoint(overrides=tuple(chosen), swept=swept))
    return points


def sampled_point(overrides: Sequence[str], sampled: Sequence[str]) -> SweepPoint:
    """Return the point that a sweeper made of a command line: its values for what is swept, the rest as typed.

    `sampled` are all overrides of the point as the sweeper spells them; keys that the command line does not have are of
    the sweeper's own configuration, and come last.
    """
    values = {_key_of(word): word for word in sampled}
    words: list[str] = []
    swept: list[str] = []
    for override in job_words(overrides):
        word = values.pop(_key_of(override), None)
        if not is_swept(override):
            words.append(override)
        elif word is not None:
            words.append(word)
            swept.append(word)
    return SweepPoint(overrides=(*words, *values.values()), swept=(*swept, *values.values()))


def fixed_and_swept(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part a command line: the overrides that all points share, and the keys of those that are swept."""
    words = job_words(overrides)
    return [word for word in words if not is_swept(word)], [_key_of(word) for word in words if is_swept(word)]


def job_words(overrides: Sequence[str]) -> list[str]:
    """Return the overrides without those that say how to sweep: they are no part of a job."""
    return [word for word in overrides if not word.startswith(_OF_THE_SWEEP)]


def is_swept(override: str) -> bool:
    """Whether an override has several values for one key, or an interval of them."""
    parsed = _parse(override)
    return parsed is not None and bool(parsed.is_sweep_override())


def sweep_layouts(points: Sequence[Composed]) -> tuple[list[Composed], list[SkippedPoint]]:
    """Part the points of a sweep: those whose layout is legal, and those to skip, with what stands against each.

    A sweep over parallel sizes is a grid, and some corners of a grid never fit: they are no mistake of the user's.
    """
    judged = [(point, tuple(layout_of(point.job)[1])) for point in points]
    kept = [point for point, problems in judged if not problems]
    return kept, [SkippedPoint(point=point, problems=problems) for point, problems in judged if problems]


def _key_of(override: str) -> str:
    return override.partition("=")[0].lstrip("+")


def _axis(override: str, place: str, problems: list[Problem]) -> list[str]:
    parsed = _parse(override)
    if parsed is None or not parsed.is_sweep_override():
        return [override]
    key = parsed.get_key_element()
    if not parsed.is_discrete_sweep():
        what = "a continuous sweep needs a sweeper"
        hint = "list the values, separated by commas; a sweeper takes an interval: hydra/sweeper=optuna"
        problems.append(Problem(key=parsed.key_or_group, what=what, where=place, hint=hint))
        return [override]
    values = _values(parsed)
    if not values:
        what = "no option matches this pattern"
        problems.append(Problem(key=parsed.key_or_group, what=what, where=place, hint="list the options"))
    return [f"{key}={value}" for value in values]


def _values(parsed: HydraOverride) -> list[str]:
    """Return the values as they are typed for a single job; the text of a text key in quotes."""
    if parsed.value_type is ValueType.GLOB_CHOICE_SWEEP:
        parsed.config_loader = new_loader()
    if not facts_of(parsed.key_or_group).takes_text:
        return list(parsed.sweep_string_iterator())
    return [_text_value(value) for value in parsed.sweep_iterator()]


def _text_value(value: object) -> str:
    if isinstance(value, QuotedString):
        return quote(value.text)
    return "null" if value is None else quote(str(value))


def _parse(override: str) -> HydraOverride | None:
    """Parse one override, its text quoted as typed; None for one that is no sweep, or will be refused anyway."""
    key, equals, value = override.partition("=")
    if not equals or not set(value) & set(",("):
        return None
    try:
        return parse(f"{key}={spell_value(value, facts_of(key.lstrip('+')), multirun=True)}")
    except GrammarError:
        return None
