"""Where the resolved configurations of two runs differ, leaf by leaf, and what set each value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus_hydra.config.build import defaults_of
from primus_hydra.config.identity import differences
from primus_hydra.config.provenance import Source, source_of
from primus_hydra.config.resolve import flatten
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem, raise_all
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import saved_sources, saved_tree

_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Side:
    """The value of a leaf in one run, and what set it; `present` is false where the run has no such key."""

    value: Any
    source: str
    present: bool = True


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One leaf whose values differ; `determining` if another value makes it another training."""

    leaf: str
    determining: bool
    left: Side
    right: Side


def compare_runs(left: RunPaths, right: RunPaths) -> list[Difference]:
    """Return every difference, those that determine the training first; raises UserError for a lost configuration."""
    trees = [saved_tree(paths.config) for paths in (left, right)]
    raise_all([_lost(paths) for paths, tree in zip((left, right), trees, strict=True) if tree is None])
    first, second = (tree or {} for tree in trees)
    sources = saved_sources(left.provenance), saved_sources(right.provenance)
    return sorted(_differences(first, second, *sources), key=lambda found: (not found.determining, found.leaf))


def _differences(
    left: Mapping[str, Any],
    right: Mapping[str, Any],
    left_sources: Mapping[str, Source],
    right_sources: Mapping[str, Source],
) -> Iterator[Difference]:
    defaults = flatten(defaults_of(JobConfig))
    one, other = flatten(left), flatten(right)
    decisive = differences(left, right)
    for leaf in sorted({*one, *other}):
        before, after = _value(leaf, one, other, defaults), _value(leaf, other, one, defaults)
        if before != after:
            yield Difference(
                leaf=leaf,
                determining=leaf in decisive,
                left=_side(leaf, before, left_sources),
                right=_side(leaf, after, right_sources),
            )


def _value(leaf: str, own: Mapping[str, Any], other: Mapping[str, Any], defaults: Mapping[str, Any]) -> Any:
    """Return a leaf's value; a key that a run was too old to save has the schema's default."""
    value = own.get(leaf, defaults.get(leaf, _ABSENT))
    # An empty group against one with keys: its keys tell the difference.
    is_group = any(name.startswith(f"{leaf}.") for name in (*own, *other))
    return _ABSENT if value == {} and is_group else value


def _side(leaf: str, value: Any, sources: Mapping[str, Source]) -> Side:
    if value is _ABSENT:
        return Side(value=None, source="not set", present=False)
    source = source_of(leaf, sources)
    return Side(value=value, source=source.text if source else "not recorded")


def _lost(paths: RunPaths) -> Problem:
    return Problem(what=f"the configuration of {paths.root.name} cannot be read", where=str(paths.config))
