"""The jobs behind runs, asked of Slurm: for `task=runs`, which only looks, and must not wait long for an answer."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from primus_hydra.run.condition import Condition, condition_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import read_state
from primus_hydra.run.submission import JobStanding, Submission, newest_submission
from primus_hydra.slurm.client import call
from primus_hydra.slurm.state import look_at, look_closely

ask_briefly = functools.partial(call, timeout_s=20.0)
_ASK_EVERY_S = 2.0
_OVER = ("finished", "failed", "interrupted")


def jobs_of(runs: Sequence[RunPaths]) -> Mapping[Path, JobStanding]:
    """Return what Slurm says of the newest jobs of runs, by the run's folder, with one question for all of them.

    Runs that have said themselves how they ended, after they were submitted, are not asked for.
    """
    newest = {paths.root: newest_submission(paths) for paths in runs}
    asked = {root: job for root, job in newest.items() if job is not None and not _has_ended(RunPaths(root), job)}
    looks = look_at(asked.values(), ask_briefly)
    return {root: JobStanding(submission=job, look=looks[job.job_id]) for root, job in asked.items()}


def job_of(paths: RunPaths) -> JobStanding | None:
    """Return what Slurm says of the newest job of one run; None if the run was never submitted."""
    submission = newest_submission(paths)
    if submission is None:
        return None
    return JobStanding(submission=submission, look=look_closely(submission, ask_briefly))


class RunLook:
    """Looks at one run again and again; Slurm is asked now and then only."""

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._job: JobStanding | None = None
        self._asked_at: float | None = None

    def condition(self) -> Condition:
        """Find out how the run stands."""
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= _ASK_EVERY_S:
            self._job = job_of(self._paths)
            self._asked_at = time.monotonic()
        return condition_of(self._paths, job=self._job)


def _has_ended(paths: RunPaths, submission: Submission) -> bool:
    state = read_state(paths.state)
    return state is not None and state.status in _OVER and state.updated_at >= submission.submitted_at
