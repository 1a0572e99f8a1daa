"""A sweep as it stands now: the record of its commands, and what the runs of its points and Slurm say. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from primus_hydra.errors import ExitCode, Problem, UserError
from primus_hydra.run.paths import RunPaths, SweepPaths
from primus_hydra.run.sweep import PointRow, read_sweep
from primus_hydra.run.sweep_look import judged, looked_at
from primus_hydra.tasks.runs_jobs import jobs_of
from primus_hydra.ui.output import print_json, print_lines
from primus_hydra.ui.sweep_text import sweep_lines


def show_sweep(root: Path, *, as_json: bool) -> int:
    """Print the table of a sweep; raises UserError if its record cannot be read."""
    paths = SweepPaths(root)
    record = read_sweep(paths)
    if record is None:
        what = f"{paths.record} cannot be read"
        raise UserError(
            Problem(key="task.run", what=what, hint="the command of the sweep, typed again, writes it anew")
        )
    sweep = judged(rows_now(record.rows), record.objective)
    if as_json:
        print_json(asdict(sweep) | {"best": sweep.best})
    else:
        print_lines(sweep_lines(sweep, paths))
    return int(ExitCode.DONE)


def rows_now(rows: Sequence[PointRow]) -> list[PointRow]:
    """Return rows as their runs stand now; Slurm is asked once for all that need it."""
    jobs = jobs_of([RunPaths(Path(row.run)) for row in rows])
    return [looked_at(row, jobs.get(Path(row.run))) for row in rows]
