"""How a job ended: its run's own word first, then Slurm's, and what to make of a job that left neither."""

from __future__ import annotations

from dataclasses import dataclass

from primus_hydra.errors import ExitCode
from primus_hydra.run.history import AttemptEnd, read_end
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import JobLook, Submission

_STATES = {
    "CANCELLED": "it was cancelled",
    "TIMEOUT": "its time limit came before the ranks had saved",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "a node ran out of memory",
    "PREEMPTED": "it was preempted",
    "DEADLINE": "its deadline came",
    "BOOT_FAIL": "a node did not boot",
}


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """The end of a job. `told`: the run itself said it, so that its own files hold the rest."""

    exit_code: int
    message: str
    told: bool = False


def outcome_of(submission: Submission, look: JobLook, end: AttemptEnd | None) -> JobOutcome:
    """Return how a job ended that is in Slurm's queue no more; `end` is that of its newest attempt, if it told one."""
    name = f"job {submission.job_id}"
    if end is not None:
        return JobOutcome(exit_code=end.exit_code, message=end.message, told=True)
    if look.state == "COMPLETED":
        return JobOutcome(exit_code=int(ExitCode.DONE), message=f"{name} ended with exit code 0")
    if look.state == "CANCELLED":
        return JobOutcome(exit_code=int(ExitCode.INTERRUPTED), message=f"{name}: {_STATES[look.state]}")
    code = look.exit_code or 1
    if look.state in _STATES:
        return JobOutcome(exit_code=code, message=f"{name}: {_STATES[look.state]} ({look.state})")
    if look.state:
        return JobOutcome(exit_code=code, message=f"{name} failed with exit code {code}")
    return JobOutcome(exit_code=1, message=f"{name} is gone from Slurm, and has not said how it ended")


def end_of_job(paths: RunPaths, submission: Submission) -> AttemptEnd | None:
    """Return how the run's newest attempt ended, if it ended in this job; None also where that cannot be read."""
    try:
        numbers = paths.attempt_numbers()
    except OSError:
        return None
    end = read_end(paths.attempt(numbers[-1]).ended) if numbers else None
    return end if end is not None and end.time >= submission.submitted_at else None
