"""`task=compare`: a number of two runs side by side, step by step, and the largest difference between them.

Reads what the runs have logged so far; a step that one of them has not logged is left out. With `task.at_most` the
command fails if the runs differ by more, so that a script can ask whether two backends train alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import key
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import CheckFailed, ExitCode, Problem, UserError, raise_all
from primus_hydra.run.metrics import last_per_step, number, read_metrics, step_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.tasks.contract import Task

_RUNS = "task.runs"
_ROWS = 20
"""Steps shown of a long run; the JSON has all of them."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One step that both runs have logged; a difference with a number that is not finite is infinite."""

    step: int
    first: float
    second: float

    @property
    def difference(self) -> float:
        """How far the two are apart."""
        apart = abs(self.first - self.second)
        return apart if math.isfinite(apart) else math.inf


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs, the steps of both (at least one), and how many steps only one of them has."""

    metric: str
    names: tuple[str, str]
    pairs: tuple[Pair, ...]
    unpaired: int

    @property
    def largest(self) -> Pair:
        """The first step at which the runs are furthest apart."""
        return max(self.pairs, key=lambda pair: pair.difference)


class Compare(Task):
    """Print a metric of two runs side by side; exit 2 if they differ by more than is allowed."""

    name: ClassVar[str] = "compare"
    slurm: ClassVar[Literal["submits", "ignores"] | None] = "ignores"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=compare`."""

        runs: list[str] = key([], "The two runs: names below run.dir, or paths of run directories.")
        metric: str = key("loss", "Which logged number: loss, grad_norm, lr, validation_loss, ...")
        at_most: float | None = key(None, "Fail if the runs differ by more than this at any step.", ge=0)
        format: Literal["text", "json"] = key("text", "A table to read, or JSON for programs.")

    options: Options

    def run(self, composed: Composed) -> int:
        """Print the comparison; raises UserError for runs that are not there, CheckFailed if they differ too much."""
        found = compare_runs(self.options.runs, Path(composed.job.run.dir).expanduser(), self.options.metric)
        print(_to_json(found) if self.options.format == "json" else "\n".join(_lines(found)))
        limit, largest = self.options.at_most, found.largest
        if limit is not None and largest.difference > limit:
            what = f"the runs differ by {largest.difference:.3g} in {found.metric} at step {largest.step}"
            raise CheckFailed(Problem(key="task.at_most", what=f"{what}, more than {limit:.3g}"))
        return int(ExitCode.DONE)


def compare_runs(names: Sequence[str], folder: Path, metric: str) -> Comparison:
    """Pair the steps of two runs, named below `folder` or by path.

    Raises UserError with everything that is wrong: a run that is not there, one without the metric, no step of both.
    """
    if len(names) != 2:
        hint = "set task.runs=[first,second]"
        raise UserError(Problem(key=_RUNS, what=f"two runs are compared, not {len(names)}", hint=hint))
    problems: list[Problem] = []
    first, second = (_values(name, folder, metric, problems) for name in names)
    raise_all(problems)
    pairs = tuple(Pair(step=step, first=first[step], second=second[step]) for step in sorted(first.keys() & second))
    if not pairs:
        what = f"no step has a {metric} in both: {names[0]} {_extent(first)}, {names[1]} {_extent(second)}"
        raise UserError(Problem(key=_RUNS, what=what, hint="log more steps: metrics.log_every=1"))
    unpaired = len(first.keys() ^ second)
    return Comparison(metric=metric, names=(names[0], names[1]), pairs=pairs, unpaired=unpaired)


def _values(name: str, folder: Path, metric: str, problems: list[Problem]) -> dict[int, float]:
    """Return a run's numbers by step; notes what is wrong with the run."""
    root = _run_folder(name, folder)
    if root is None:
        problems.append(_no_run(name, folder))
        return {}
    rows = last_per_step(read_metrics(RunPaths(root).metrics))
    values = {step_of(row) or 0: value for row in rows if (value := number(row, metric)) is not None}
    if not rows:
        problems.append(Problem(key=_RUNS, what=f"{name} has logged no step yet", where=str(RunPaths(root).metrics)))
    elif not values:
        logged = sorted({other for row in rows for other in row if number(row, other) is not None} - {"step", "time"})
        hint = did_you_mean(metric, logged) or f"logged: {', '.join(logged)}"
        problems.append(Problem(key="task.metric", what=f"{name} has logged no {metric}", hint=hint))
    return values


def _run_folder(name: str, folder: Path) -> Path | None:
    return next((path for path in (folder / name, Path(name).expanduser()) if path.is_dir()), None)


def _no_run(name: str, folder: Path) -> Problem:
    there = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    hint = did_you_mean(name, there) or (f"runs there: {', '.join(there[:12])}" if there else "there is none yet")
    return Problem(key=_RUNS, what=f"there is no run {name!r}", where=str(folder), hint=hint)


def _extent(values: dict[int, float]) -> str:
    return f"has steps {min(values)} to {max(values)}"


def _lines(found: Comparison) -> Iterator[str]:
    widths = [max(12, len(name)) for name in found.names]
    yield f"{found.metric} of {found.names[0]} and {found.names[1]}"
    yield ""
    first, second = (f"{name:>{width}}" for name, width in zip(found.names, widths, strict=True))
    yield f"{'step':>8}  {first}  {second}  {'difference':>10}"
    for pair in _shown(found):
        mark = "  largest" if pair == found.largest else ""
        numbers = f"{pair.first:>{widths[0]}.7g}  {pair.second:>{widths[1]}.7g}"
        yield f"{pair.step:>8}  {numbers}  {pair.difference:>10.2e}{mark}"
    yield ""
    alone = f" ({found.unpaired} more in only one of the runs)" if found.unpaired else ""
    yield f"Steps of both: {len(found.pairs)}{alone}."
    yield f"Largest difference: {found.largest.difference:.3g} at step {found.largest.step}."


def _shown(found: Comparison) -> list[Pair]:
    """Return some pairs of a long run: evenly over its steps, with the last one and the largest difference."""
    every = max(1, math.ceil(len(found.pairs) / _ROWS))
    chosen = {*range(0, len(found.pairs), every), len(found.pairs) - 1, found.pairs.index(found.largest)}
    return [found.pairs[position] for position in sorted(chosen)]


def _to_json(found: Comparison) -> str:
    steps = [_plain(pair) for pair in found.pairs]
    tree = {"metric": found.metric, "runs": list(found.names), "steps": steps, "unpaired": found.unpaired}
    return json.dumps({**tree, "largest": _plain(found.largest)}, indent=2, ensure_ascii=False)


def _plain(pair: Pair) -> dict[str, Any]:
    """Return plain data; a number that is not finite becomes its name, as JSON has no such numbers."""
    values = {"first": pair.first, "second": pair.second, "difference": pair.difference}
    return {"step": pair.step, **{name: x if math.isfinite(x) else str(x) for name, x in values.items()}}
