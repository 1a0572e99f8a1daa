"""How the points of a sweep stand now, read from their runs: state, metric, step, exit code, and where more is said.

Reads only. A point whose run was never made keeps what the command said of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from primus_hydra.run.condition import condition_of
from primus_hydra.run.history import read_end
from primus_hydra.run.listing import is_run, step_reached
from primus_hydra.run.metrics import newest_rows, number, read_metrics
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import JobStanding, newest_submission
from primus_hydra.run.sweep import AUTO, PointRow, Sweep

_RECENT_ROWS = 200


def judged(rows: Sequence[PointRow], objective: str) -> Sweep:
    """Return a sweep of these rows with their metric measured; `auto` is the validation loss if a point has one."""
    names = ("validation_loss", "loss") if objective == AUTO else (objective,)
    found = [measured(RunPaths(Path(row.run)), names) for row in rows]
    metric = next((name for name in names if any(name in values for values in found)), names[-1])
    valued = (replace(row, value=values.get(metric)) for row, values in zip(rows, found, strict=True))
    return Sweep(metric=metric, objective=objective, rows=tuple(valued))


def measured(paths: RunPaths, names: Sequence[str]) -> dict[str, float]:
    """Return the last values of metrics of a run, by name; one that was never measured is left out."""
    found = _last(newest_rows(paths.metrics, _RECENT_ROWS), names)
    if len(found) == len(names):
        return found
    with contextlib.suppress(OSError):
        return _last(read_metrics(paths.metrics), names)
    return found


def objective_value(paths: RunPaths, objective: str) -> tuple[str, float | None]:
    """Return the name and the last value of what one run is judged by."""
    names = ("validation_loss", "loss") if objective == AUTO else (objective,)
    values = measured(paths, names)
    name = next((name for name in names if name in values), names[-1])
    return name, values.get(name)


def looked_at(row: PointRow, job: JobStanding | None = None) -> PointRow:
    """Return a row as its run stands now; `job` is what a scheduler says of the run's newest job."""
    paths = RunPaths(Path(row.run))
    if not is_run(paths.root):
        return row
    condition = condition_of(paths, job=job)
    state = condition.state
    ended = condition.word in ("finished", "saved", "interrupted", "failed")
    told = state if ended else None
    return replace(
        row,
        state=condition.word,
        step=step_reached(condition, newest_rows(paths.metrics, 1)),
        steps=state.steps if state else None,
        reason=told.message if told and condition.word != "finished" else None,
        exit_code=told.exit_code if told else None,
        log=_text(log_of(paths)) if condition.word in ("failed", "died", "cancelled") else None,
        job=job.submission.job_id if job is not None else _job_id(paths),
    )


def log_of(paths: RunPaths) -> Path | None:
    """Return the log that says most of how the newest attempt ended: the failed rank's, the job's, or the agent's."""
    with contextlib.suppress(OSError):
        numbers = paths.attempt_numbers()
        end = read_end(paths.attempt(numbers[-1]).ended) if numbers else None
        if end is not None and end.failed_rank is not None and paths.rank_log(end.failed_rank).exists():
            return paths.rank_log(end.failed_rank)
        submission = newest_submission(paths)
        logs = paths.submission(submission.number).logs() if submission else []
        candidates = [*(log for log in reversed(logs) if log.stat().st_size), paths.agent_log]
        return next((log for log in candidates if log.exists()), None)
    return None


def _last(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in rows:
        found |= {name: value for name in names if (value := number(dict(row), name)) is not None}
    return found


def _job_id(paths: RunPaths) -> str | None:
    submission = newest_submission(paths)
    return submission.job_id if submission else None


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
