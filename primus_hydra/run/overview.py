"""Everything that is known of one run at one moment, gathered for whoever shows it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from primus_hydra.run.checkpoints import checkpoint_steps
from primus_hydra.run.condition import Condition, condition_of
from primus_hydra.run.goodput import Goodput, goodput_so_far
from primus_hydra.run.history import AttemptRecord, RankPlace, attempt_records, rank_places
from primus_hydra.run.listing import step_reached
from primus_hydra.run.manifest import read_manifest, verify
from primus_hydra.run.metrics import Row, newest_rows
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import RunCommand, newest_command
from primus_hydra.run.submission import JobStanding
from primus_hydra.run.unsaved import Unsaved, read_unsaved

T = TypeVar("T")
_ROWS = 50


@dataclass(frozen=True, kw_only=True)
class CheckpointRecord:
    """One checkpoint folder: fit to go on from, just being written, or damaged and why."""

    path: Path
    word: Literal["complete", "being saved", "damaged", "set aside"]
    step: int | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunOverview:
    """One run; `row` is its last logged step, every value that was measured then. `ranks` only while it is at work.

    `unsaved` says why its newest attempt skips saves, if it does.
    """

    name: str
    root: Path
    condition: Condition
    step: int | None
    row: Row
    attempts: tuple[AttemptRecord, ...]
    ranks: tuple[RankPlace, ...]
    checkpoints: tuple[CheckpointRecord, ...]
    unsaved: Unsaved | None
    goodput: Goodput | None
    command: RunCommand | None


def overview_of(name: str, root: Path, *, job: JobStanding | None = None) -> RunOverview:
    """Read it all; verifies every checkpoint. What cannot be read is left out. `job` is the newest at a scheduler."""
    paths = RunPaths(root)
    condition = condition_of(paths, job=job)
    rows = newest_rows(paths.metrics, _ROWS)
    at_work = condition.live or condition.word == "silent"
    return RunOverview(
        name=name,
        root=root,
        condition=condition,
        step=step_reached(condition, rows),
        row=_merged(rows),
        attempts=tuple(_readable(lambda: attempt_records(paths, condition), [])),
        ranks=tuple(_readable(lambda: rank_places(paths.attempt(condition.attempt)), []) if at_work else ()),
        checkpoints=tuple(_readable(lambda: checkpoint_records(paths, live=condition.live), [])),
        unsaved=read_unsaved(paths.attempt(condition.attempt).unsaved),
        goodput=_readable(lambda: goodput_so_far(paths), None),
        command=_readable(lambda: newest_command(paths), None),
    )


def checkpoint_records(paths: RunPaths, *, live: bool) -> list[CheckpointRecord]:
    """Judge every checkpoint, the oldest first, then those that were set aside; raises OSError."""
    steps = checkpoint_steps(paths)
    newest = max(steps, default=0)
    found = (_checkpoint(paths.checkpoint(step), step, live=live and step == newest) for step in steps)
    aside = [CheckpointRecord(path=path, word="set aside") for path in paths.damaged_checkpoints()]
    return [record for record in found if record is not None] + aside


def _checkpoint(folder: Path, step: int, *, live: bool) -> CheckpointRecord | None:
    problem = verify(folder)
    if problem is None:
        return CheckpointRecord(path=folder, word="complete", step=step)
    if not folder.exists():  # an old one that the run has just deleted
        return None
    if live and read_manifest(folder) is None:
        return CheckpointRecord(path=folder, word="being saved", step=step)
    return CheckpointRecord(path=folder, word="damaged", step=step, reason=problem.what)


def _merged(rows: list[Row]) -> Row:
    """Return the last row, with what an earlier one measured of the same step: a validated step is logged twice."""
    last = rows[-1] if rows else {}
    return {name: value for row in rows if row.get("step") == last.get("step") for name, value in row.items()}


def _readable(read: Callable[[], T], otherwise: T) -> T:
    with contextlib.suppress(OSError):
        return read()
    return otherwise
