"""The record of a sweep: what became of each of its points, kept in the sweep's folder beside the runs of the points.

A command writes the rows of its own points; those of other commands for the same sweep stay. Both files are replaced
whole, so that nobody reads half of one. Holds what was told of a point; how its run stands is in the run's own files.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from primus_hydra.run.atomic import read_json, write_json, write_text
from primus_hydra.run.lock import RunLock
from primus_hydra.run.paths import SweepPaths

_N = TypeVar("_N", int, float)
_WAIT_S = 20.0
"""Writing takes milliseconds; another command may be at it."""
AUTO = "auto"
"""The objective that is the validation loss where it is measured, else the loss."""
_LARGER = frozenset({"tokens_per_s", "tflops_per_rank", "mfu"})
"""Metrics of which more is better; of every other one, less is."""


@dataclass(frozen=True, kw_only=True)
class PointRow:
    """One point. `overrides` are those that the sweep varies, `run` is its directory, `point` that directory's name.

    `state` is a word of a run (see `run.condition`), or of a point without one: `skipped` (its layout is illegal),
    `not submitted`, `not started`, `submitted`. `reason` says why; `log` is where more is said. `value` is the sweep's
    metric as it was measured last, and may be nan or infinite.
    """

    point: str
    overrides: tuple[str, ...]
    run: str
    state: str
    reason: str | None = None
    value: float | None = None
    step: int | None = None
    steps: int | None = None
    exit_code: int | None = None
    log: str | None = None
    job: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The rows of a sweep in the order in which they came. `metric` names their values.

    `objective` is what was asked for: a metric, or `auto`. `updated_at` is seconds since the epoch.
    """

    metric: str
    objective: str = AUTO
    rows: tuple[PointRow, ...] = ()
    updated_at: float = 0.0

    @property
    def larger(self) -> bool:
        """Whether a larger value of the metric is the better one."""
        return self.metric in _LARGER

    @property
    def best(self) -> PointRow | None:
        """The finished point with the best value; None if there is none, or only one point."""
        done = [row for row in self.rows if row.state == "finished" and _is_finite(row.value)]
        if not done or len(self.rows) < 2:
            return None
        return (max if self.larger else min)(done, key=lambda row: row.value or 0.0)


def write_sweep(paths: SweepPaths, build: Callable[[Sequence[PointRow]], Sweep]) -> Sweep:
    """Write both files; `build` is given the rows that are there, of other commands too, and returns the whole.

    Raises OSError, and UserError if another command does not let go of the lock.
    """
    paths.root.mkdir(parents=True, exist_ok=True)
    with RunLock(paths.lock, wait_s=_WAIT_S):
        before = read_sweep(paths)
        whole = replace(build(before.rows if before else ()), updated_at=time.time())
        write_json(paths.record, _plain(whole, paths.root.name))
        write_text(paths.table, _csv(whole))
    return whole


def read_sweep(paths: SweepPaths) -> Sweep | None:
    """Return the record of a sweep; None where there is none, or one of another program."""
    data = read_json(paths.record)
    try:
        return None if data is None else _sweep_of(data, paths.root)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def columns_of(rows: Sequence[PointRow]) -> list[str]:
    """Return the keys that a sweep varies, in the order in which they came."""
    return list(dict.fromkeys(key for row in rows for key in _values(row.overrides)))


def _values(overrides: Sequence[str]) -> dict[str, str]:
    pairs = (override.partition("=") for override in overrides)
    return {key: value for key, _, value in pairs}


def _plain(sweep: Sweep, name: str) -> dict[str, object]:
    return {
        "sweep": name,
        "objective": sweep.objective,
        "metric": sweep.metric,
        "better": "larger" if sweep.larger else "smaller",
        "best": sweep.best.point if sweep.best else None,
        "updated_at": round(sweep.updated_at, 3),
        "points": [_plain_row(row) for row in sweep.rows],
    }


def _plain_row(row: PointRow) -> dict[str, object]:
    odd = row.value is not None and not math.isfinite(row.value)  # which strict JSON has no form for
    return asdict(row) | {"overrides": _values(row.overrides)} | ({"value": str(row.value)} if odd else {})


def _csv(sweep: Sweep) -> str:
    keys = columns_of(sweep.rows)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["point", *keys, "state", sweep.metric, "step", "steps", "exit_code", "reason", "job", "run", "log"])
    for row in sweep.rows:
        values = _values(row.overrides)
        facts = (row.state, row.value, row.step, row.steps, row.exit_code, row.reason, row.job, row.run, row.log)
        table.writerow([row.point, *(values.get(key) for key in keys), *facts])
    return text.getvalue()


def _sweep_of(data: Mapping[str, object], root: Path) -> Sweep:
    points = data["points"]
    if not isinstance(points, list):
        raise TypeError("no list of points")
    return Sweep(
        metric=str(data["metric"]),
        objective=str(data["objective"]),
        rows=tuple(_row_of(point, root) for point in points),
        updated_at=float(str(data["updated_at"])),
    )


def _row_of(data: Mapping[str, object], root: Path) -> PointRow:
    overrides = data["overrides"]
    if not isinstance(overrides, Mapping):
        raise TypeError("no overrides")
    point = str(data["point"])
    return PointRow(
        point=point,
        overrides=tuple(f"{key}={value}" for key, value in overrides.items()),
        run=str(data.get("run") or root / point),
        state=str(data["state"]),
        reason=_text(data.get("reason")),
        value=_number(data.get("value"), float),
        step=_number(data.get("step"), int),
        steps=_number(data.get("steps"), int),
        exit_code=_number(data.get("exit_code"), int),
        log=_text(data.get("log")),
        job=_text(data.get("job")),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object, kind: type[_N]) -> _N | None:
    return None if value is None else kind(str(value))


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
