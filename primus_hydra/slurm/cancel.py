"""Ending a job: asking it to save first, or at once. Only the job that was submitted is touched."""

from __future__ import annotations

from primus_hydra.errors import HostError, Problem
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import JobLook, Submission, ask_for_stop
from primus_hydra.slurm.client import Call, call
from primus_hydra.slurm.state import look_at

_OVER = ("invalid job id", "already completing", "already completed")


def ask_to_save(paths: RunPaths, submission: Submission, by: str, ask: Call = call) -> JobLook:
    """Ask a job to save and end for good, one that still waits to leave the queue; return what was seen of it before.

    The signal goes to the tasks of the nodes alone: the script's shell and srun wait for them. Raises HostError if
    Slurm does not answer or refuses.
    """
    look = look_at([submission], ask)[submission.job_id]
    if look.word == "unknown":
        raise HostError(_unasked(submission, look.reason))
    if look.word in ("running", "completing"):
        ask_for_stop(paths, submission, by)
        _scancel(submission, ["--signal=USR2"], ask)
    elif look.word == "pending":
        _scancel(submission, [], ask)
    return look


def cancel(submission: Submission, ask: Call = call) -> None:
    """End a job at once, as Slurm does: SIGTERM, and SIGKILL some time later; raises HostError as `ask_to_save`."""
    look = look_at([submission], ask)[submission.job_id]
    if look.word == "unknown":
        raise HostError(_unasked(submission, look.reason))
    if look.live:
        _scancel(submission, [], ask)


def _scancel(submission: Submission, options: list[str], ask: Call) -> None:
    answer = ask(["scancel", *options, submission.job_id])
    if answer.code != 0 and not any(part in answer.words.lower() for part in _OVER):
        raise HostError(_unasked(submission, answer.words))


def _unasked(submission: Submission, words: str) -> Problem:
    what = f"job {submission.job_id} could not be asked to end: {words}"
    return Problem(key="task.run", what=what, hint=f"try again, or: scancel {submission.job_id}")
