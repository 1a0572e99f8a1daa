"""The runs below a folder: which there are, one line of facts of each, and the one that a name means.

Reads a few small files of each run and the ends of long ones. Folders that are no runs are passed over, and no file
that is missing, torn or foreign is an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import Problem, UserError
from primus_hydra.run.atomic import read_json
from primus_hydra.run.condition import Condition, Word, condition_of
from primus_hydra.run.goodput import goodput_so_far
from primus_hydra.run.history import restarts_of
from primus_hydra.run.lock import read_holder
from primus_hydra.run.metrics import Row, newest_rows, number, step_of
from primus_hydra.run.paths import RunPaths, SweepPaths
from primus_hydra.run.submission import JobStanding

_ROWS_WITH_A_LOSS = 50
_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run in a list; `goodput` is a share of 1, `news_at` seconds since the epoch. None: not known."""

    name: str
    root: Path
    word: Word
    step: int | None
    steps: int | None
    loss: float | None
    attempts: int
    restarts: int
    news_at: float | None
    goodput: float | None
    job: JobStanding | None = None


AskJobs = Callable[[Sequence[RunPaths]], Mapping[Path, JobStanding]]
"""Asks a scheduler for the newest jobs of runs; the answer is by the run's folder."""


def run_folders(base: Path) -> dict[str, Path]:
    """Return the runs below a folder by name; a point of a sweep lies below its run and is called `run/point`."""
    found: dict[str, Path] = {}
    for folder in _folders(base):
        found |= {folder.name: folder} if is_run(folder) else {}
        found |= {f"{folder.name}/{point.name}": point for point in _folders(folder) if is_run(point)}
    return found


def is_run(folder: Path) -> bool:
    """Whether a folder is a run: it has attempts, submissions, a configuration and a state, or somebody locks it."""
    paths = RunPaths(folder)
    with contextlib.suppress(OSError):
        if paths.attempts.is_dir() or paths.submissions.is_dir() or (paths.config.is_file() and paths.state.is_file()):
            return True
        return read_holder(paths.lock) is not None
    return False


def list_runs(base: Path, *, now: float | None = None, ask: AskJobs | None = None) -> list[RunSummary]:
    """Sum up every run below a folder, the one with the newest news first; `ask` asks a scheduler for all jobs."""
    folders = run_folders(base)
    jobs = {} if ask is None else ask([RunPaths(root) for root in folders.values()])
    runs = [summary_of(name, root, now=now, job=jobs.get(root)) for name, root in folders.items()]
    return sorted(runs, key=lambda run: (-(run.news_at or 0.0), run.name))


def summary_of(name: str, root: Path, *, now: float | None = None, job: JobStanding | None = None) -> RunSummary:
    """Sum up one run; `job` is its newest job at a scheduler."""
    paths = RunPaths(root)
    condition = condition_of(paths, now=now, job=job)
    rows = newest_rows(paths.metrics, _ROWS_WITH_A_LOSS)
    restarts, share = 0, None
    with contextlib.suppress(OSError):
        restarts, share = restarts_of(paths), _goodput_share(paths)
    return RunSummary(
        name=name,
        root=root,
        word=condition.word,
        step=step_reached(condition, rows),
        steps=condition.state.steps if condition.state else None,
        loss=next((loss for row in reversed(rows) if (loss := number(row, "loss")) is not None), None),
        attempts=condition.attempt,
        restarts=restarts,
        news_at=condition.news_at,
        goodput=share,
        job=job,
    )


def step_reached(condition: Condition, rows: list[Row]) -> int | None:
    """Return the last finished step of the newest attempt: its rows know it better than a state renewed at times."""
    state = condition.state
    row = rows[-1] if rows else {}
    logged = step_of(row) if state is None or row.get("attempt") == state.attempt else None
    return logged if logged is not None else state.step if state else None


def find_run(base: Path, asked: str, *, key: str = "task.run") -> Path:
    """Return the run that is meant by its name, its path, or an unambiguous beginning of a name.

    Raises UserError about `key`, with the names that are near.
    """
    runs = run_folders(base)
    if asked in runs:
        return runs[asked]
    path = _as_path(asked)
    if path is not None and is_run(path):
        return path
    begun = [name for name in runs if name.startswith(asked) or name.rpartition("/")[2].startswith(asked)]
    if len(begun) == 1:
        return runs[begun[0]]
    raise UserError(_several(key, asked, begun) if begun else _unknown(key, asked, list(runs), base))


def find_sweep(base: Path, asked: str) -> Path | None:
    """Return the sweep that is meant by its name, its path, or the beginning of a name that no other run has."""
    if asked and is_sweep(base / asked):
        return base / asked
    path = _as_path(asked)
    if path is not None and is_sweep(path):
        return path
    begun = [folder for folder in _folders(base) if folder.name.startswith(asked) and is_sweep(folder)]
    runs = [name for name in run_folders(base) if name.startswith(asked) or name.rpartition("/")[2].startswith(asked)]
    if len(begun) == 1 and all(name.startswith(f"{begun[0].name}/") for name in runs):
        return begun[0]
    return None


def is_sweep(folder: Path) -> bool:
    """Whether a folder holds the record of a sweep, and is no run itself."""
    return SweepPaths(folder).record.is_file() and not is_run(folder)


def name_of(root: Path, base: Path) -> str:
    """Return the name of a run in the list of a folder; a run elsewhere has its path."""
    return root.relative_to(base).as_posix() if base in root.parents else str(root)


def _goodput_share(paths: RunPaths) -> float | None:
    """Return the share that the last attempt's end noted, or that of now where an attempt went on since."""
    noted = read_json(paths.goodput) or {}
    share = noted.get("share")
    if isinstance(share, (int, float)) and noted.get("attempts") == len(paths.attempt_numbers()):
        return float(share)
    account = goodput_so_far(paths)
    return account.share if account else None


def _folders(base: Path) -> Iterator[Path]:
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    return (base / name for name in sorted(names))


def _as_path(asked: str) -> Path | None:
    try:
        return Path(asked).expanduser().absolute()
    except RuntimeError:  # ~name of a user whom this machine does not know
        return None


def _several(key: str, asked: str, names: list[str]) -> Problem:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    what = f"{len(names)} runs begin with {asked!r}: {', '.join(names[:_SHOWN])}{more}"
    return Problem(key=key, what=what, hint="write more of the name")


def _unknown(key: str, asked: str, names: list[str], base: Path) -> Problem:
    leaves = [name.rpartition("/")[2] for name in names if "/" in name]
    some = f"runs there: {', '.join(names[:_SHOWN])}" if names else "there is none; run.dir=FOLDER says where runs are"
    hint = did_you_mean(asked, [*names, *leaves]) or some
    return Problem(key=key, what=f"there is no run {asked!r} in {base}", hint=hint)
