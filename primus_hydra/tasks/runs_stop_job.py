"""`task.action=stop` for a run in Slurm: ask its job to save and end for good, and wait until it has left the queue."""

from __future__ import annotations

import os
import time

from primus_hydra.config.schema import LaunchConfig
from primus_hydra.errors import ExitCode, HostError, Problem
from primus_hydra.run.condition import condition_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import saved_tree
from primus_hydra.run.submission import JobLook, JobStanding
from primus_hydra.slurm.cancel import ask_to_save, cancel
from primus_hydra.slurm.outcome import end_of_job, outcome_of
from primus_hydra.slurm.state import look_closely
from primus_hydra.tasks.runs_jobs import ask_briefly
from primus_hydra.ui.output import print_json, print_lines
from primus_hydra.ui.runs_text import headline

ASK_EVERY_S = 1.0


def stop_job(name: str, paths: RunPaths, job: JobStanding, *, as_json: bool, ending_s: float) -> int:
    """Stop the job of a run; returns 0 once it is at rest, or the exit code of a run that failed in its stop.

    Raises HostError if Slurm does not answer, or the job has not ended within the grace and `ending_s` more.
    """
    submission, grace_s = job.submission, grace_of(paths, job.submission.number)
    before = ask_to_save(paths, submission, f"process {os.getpid()} on {os.uname().nodename}")
    if not as_json and before.word != "pending":
        said = f"asked job {submission.job_id} to stop; it has at most {grace_s:g} s (launch.stop_grace_s) to save"
        print_lines([said])
    look = _wait(paths, job, grace_s + ending_s, ran=before.word != "pending")
    ended = JobStanding(submission=submission, look=look)
    condition = condition_of(paths, job=ended)
    if as_json:
        print_json({"name": name, "asked": True, "condition": condition})
    else:
        print_lines([headline(name, condition)])
    outcome = outcome_of(submission, look, end_of_job(paths, submission))
    stopped = (ExitCode.REQUEUE, ExitCode.INTERRUPTED)
    return outcome.exit_code if outcome.exit_code not in stopped else int(ExitCode.DONE)


def _wait(paths: RunPaths, job: JobStanding, limit_s: float, *, ran: bool) -> JobLook:
    """Wait until the job has ended; one that goes back into the queue is taken out of it."""
    submission, end = job.submission, time.monotonic() + limit_s
    while True:
        look = look_closely(submission, ask_briefly)
        if look.word in ("ended", "gone"):
            return look
        if look.word == "pending" and ran:
            cancel(submission)
        if time.monotonic() > end:
            what = f"job {submission.job_id} has been asked to stop and has not ended within {limit_s:g} s"
            hint = f"task.action=logs; scancel {submission.job_id}"
            raise HostError(Problem(key="task.run", what=what, where=str(paths.root), hint=hint))
        time.sleep(ASK_EVERY_S)


def grace_of(paths: RunPaths, number: int) -> float:
    """Return the seconds that a submitted job has to save."""
    launch = (saved_tree(paths.submission(number).config) or {}).get("launch")
    said = launch.get("stop_grace_s") if isinstance(launch, dict) else None
    return float(said) if isinstance(said, (int, float)) else LaunchConfig().stop_grace_s


def unasked(job: JobStanding) -> Problem:
    """Return the problem of a run whose job Slurm cannot be asked for."""
    what = f"the run was submitted as job {job.submission.job_id}, and Slurm cannot be asked for it: {job.look.reason}"
    hint = f"try again, on a login node of its cluster; or there: scancel {job.submission.job_id}"
    return Problem(key="task.run", what=what, hint=hint)
