"""A sweep as text: a line for each point, then what is to be said of those that did not finish. Reads nothing."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path

from primus_hydra.run.paths import SweepPaths
from primus_hydra.run.sweep import PointRow, Sweep
from primus_hydra.ui.words import loss

_LOSSES = ("loss", "validation_loss")
_RIGHT = ("metric", "step", "exit")
_IN_SLURM = ("submitted", "queued", "starting", "running")
_LONGEST = 60


def sweep_lines(sweep: Sweep, paths: SweepPaths) -> Iterator[str]:
    """Return the whole table of a sweep."""
    yield f"sweep {paths.root.name}: {_count(sweep)}"
    if sweep.best is not None:
        yield f"  best: {_label(sweep.best)} ({sweep.metric} {_value(sweep, sweep.best)})"
    yield from _table(sweep, paths)
    for row in sweep.rows:
        yield from _why(row)
    yield f"  table: {paths.table}, {paths.record.name} beside it"


def _count(sweep: Sweep) -> str:
    states = collections.Counter(row.state for row in sweep.rows)
    plural = "s" if len(sweep.rows) > 1 else ""
    return f"{len(sweep.rows)} point{plural}, {', '.join(f'{count} {state}' for state, count in states.items())}"


def _table(sweep: Sweep, paths: SweepPaths) -> Iterator[str]:
    head = {"point": "point", "state": "state", "metric": sweep.metric, "step": "step", "exit": "exit", "run": "run"}
    rows = [head, *(_cells(sweep, row, paths) for row in sweep.rows)]
    widths = {name: max(len(row[name]) for row in rows) for name in head}
    for row in rows:
        cells = (text.rjust(widths[name]) if name in _RIGHT else text.ljust(widths[name]) for name, text in row.items())
        yield f"  {'  '.join(cells).rstrip()}"


def _cells(sweep: Sweep, row: PointRow, paths: SweepPaths) -> dict[str, str]:
    step = "-" if row.step is None else str(row.step) if row.steps is None else f"{row.step}/{row.steps}"
    run = Path(row.run)
    return {
        "point": _short(_label(row)),
        "state": f"{row.state} ({row.job})" if row.job and row.state in _IN_SLURM else row.state,
        "metric": _value(sweep, row),
        "step": step,
        "exit": "-" if row.exit_code is None else str(row.exit_code),
        "run": run.name if run.parent == paths.root else str(run),
    }


def _why(row: PointRow) -> Iterator[str]:
    """Return why a point has no result, and where more is said."""
    if row.reason is None and row.log is None:
        return
    first, *rest = (row.reason or "").splitlines() or [""]
    yield f"  {_short(_label(row))}: {first or row.state}"
    yield from (f"    {line}" for line in rest)
    if row.log is not None:
        yield f"    log: {row.log}"


def _label(row: PointRow) -> str:
    return ", ".join(row.overrides) or row.point


def _short(label: str) -> str:
    text = label.replace("\n", "\\n")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _value(sweep: Sweep, row: PointRow) -> str:
    if row.value is None:
        return "-"
    return loss(row.value) if sweep.metric in _LOSSES else f"{row.value:.6g}"
