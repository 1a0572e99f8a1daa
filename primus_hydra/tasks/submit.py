"""`task=train` with `hydra/launcher=submitit`: submit the job, follow it to its end, and end with its exit code.

A sweep submits all points before it waits for any. One that is refused or fails neither stops nor hides the others.
"""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Sequence

from primus_hydra.config.composed import Composed
from primus_hydra.errors import ExitCode
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.run.checkpoints import complete_steps
from primus_hydra.run.metrics import MetricsTail
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import read_state
from primus_hydra.run.sweep_look import log_of
from primus_hydra.run.tail import last_lines
from primus_hydra.slurm.outcome import JobOutcome, end_of_job
from primus_hydra.slurm.wait import Followed, Waited, wait_for
from primus_hydra.tasks.ending import command_line, show_end, show_finished_before
from primus_hydra.tasks.submission import Submitted, check_submission, run_name, submit
from primus_hydra.tasks.sweep_book import SweepBook, unquoted
from primus_hydra.ui.progress import ProgressView
from primus_hydra.ui.screen import show

_LOG_LINES = 15


def submit_run(composed: Composed) -> int:
    """Submit one job; return its exit code, or 0 at once with `launch.wait=false`."""
    checked = check_submission(composed)
    if checked.finished:
        show_finished_before(checked.paths, composed)
        return int(ExitCode.DONE)
    submitted = submit(checked)
    print(_taken(submitted), flush=True)
    if not composed.job.launch.wait:
        print(_how_to_look(submitted))
        return int(ExitCode.DONE)
    began = time.monotonic()
    with ProgressView(composed.job.training.steps) as view:
        waited = wait_for([submitted.followed], _OneRun(submitted, view))
    return _ending(submitted, waited, seconds=time.monotonic() - began)


def submit_points(points: Sequence[Composed], runs: Sequence[RunPaths], book: SweepBook) -> int | None:
    """Submit every point of a sweep, then wait for those that are to be waited for, and note what came of each.

    Returns the code of a stop that ended the waiting.
    """
    jobs = [job for point, paths in zip(points, runs, strict=True) if (job := _submit_point(point, paths, book))]
    book.write()
    waited_for = [job for job in jobs if job.composed.job.launch.wait]
    if not waited_for:
        return None
    labels = {job.submission.job_id: _label(job.composed) for job in waited_for}
    waited = wait_for([job.followed for job in waited_for], _ManyRuns(labels))
    for job in waited_for:
        _note_end(job, waited, book)
    return None if waited.told is None else _code_of(waited.told)


def _submit_point(point: Composed, paths: RunPaths, book: SweepBook) -> Submitted | None:
    """Submit one point; None where there is no job to wait for, and the book says why."""
    try:
        checked = check_submission(point)
        if checked.finished:
            book.look(paths, exit_code=int(ExitCode.DONE))
            return None
        submitted = submit(checked)
    except Exception as error:  # of this point alone; its traceback is kept
        book.fail(paths, error, "not submitted")
        return None
    book.note(paths, state="submitted", job=submitted.submission.job_id)
    show(f"{_label(point)}: {_taken(submitted)}\n", sys.stdout)
    return submitted


def _note_end(job: Submitted, waited: Waited, book: SweepBook) -> None:
    outcome = waited.outcomes.get(job.submission.job_id)
    if outcome is None:  # told twice to stop
        book.note(job.paths, state="cancelled", reason="cancelled before it had ended")
        return
    book.look(job.paths, exit_code=outcome.exit_code, job=job.submission.job_id)
    if outcome.exit_code != ExitCode.DONE:
        book.note(job.paths, reason=outcome.message)
    if not outcome.told:
        state = "finished" if outcome.exit_code == ExitCode.DONE else "failed"
        book.note(job.paths, state=state, log=None if (log := log_of(job.paths)) is None else str(log))


class _OneRun:
    """One run on the screen as if it trained here."""

    def __init__(self, submitted: Submitted, view: ProgressView) -> None:
        self._tail = MetricsTail(submitted.paths.metrics, skip_existing=True)
        self._view = view

    def say(self, job: Followed, text: str) -> None:
        """Tell something of the job."""
        self._view.say(f"job {job.submission.job_id} {text}")

    def tick(self) -> None:
        """Show the steps that were logged."""
        self._view.feed(self._tail.poll())


class _ManyRuns:
    """A sweep on the screen: what happens to its jobs."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels

    def say(self, job: Followed, text: str) -> None:
        """Tell something of one job."""
        job_id = job.submission.job_id
        print(f"{self._labels[job_id]}: job {job_id} {text}", flush=True)

    def tick(self) -> None:
        """Steps of many runs would hide what matters."""


def _ending(submitted: Submitted, waited: Waited, *, seconds: float) -> int:
    """Say how a run ended, and return the exit code of the command."""
    outcome = waited.outcomes.get(submitted.submission.job_id)
    if outcome is None:
        return _code_of(waited.told)
    if outcome.told:
        _show_end(submitted, outcome, seconds)
    else:
        _show_loss(submitted, outcome)
    return max(outcome.exit_code, _code_of(waited.told)) if waited.told is not None else outcome.exit_code


def _show_end(submitted: Submitted, outcome: JobOutcome, seconds: float) -> None:
    paths, end = submitted.paths, end_of_job(submitted.paths, submitted.submission)
    rank = end.failed_rank if end else None
    result = LaunchResult(
        exit_code=outcome.exit_code,
        message=outcome.message,
        failed_rank=rank,
        log=None if rank is None else paths.rank_log(rank),
    )
    state = read_state(paths.state)
    step = max(state.step if state else 0, *complete_steps(paths)[-1:], 0)
    show_end(paths, submitted.composed, result, step=step, seconds=seconds)


def _show_loss(submitted: Submitted, outcome: JobOutcome) -> None:
    """Tell of a job that its run said nothing of: what the job's own logs say is all there is."""
    print(outcome.message)
    for log in submitted.paths.submission(submitted.submission.number).logs():
        lines = [line.decode("utf-8", errors="replace") for line in last_lines(log, _LOG_LINES)]
        if lines:
            print("\n".join([f"  the last lines of {log}:", *(f"  | {line}" for line in lines)]))


def _taken(submitted: Submitted) -> str:
    name = run_name(submitted.composed, submitted.paths)
    nodes = submitted.submission.nodes
    return f"submitted {name} as job {submitted.submission.job_id} ({nodes} node{'s' if nodes > 1 else ''})"


def _how_to_look(submitted: Submitted) -> str:
    root = submitted.paths.root
    look = shlex.join(command_line(["task=runs", f"task.run={root}"]))
    return f"  run:          {root}\n  look:         {look}\n  stop:         {look} task.action=stop"


def _label(composed: Composed) -> str:
    return ", ".join(map(unquoted, composed.swept)) if composed.swept else "the only point"


def _code_of(told: int | None) -> int:
    if told is None:
        return int(ExitCode.DONE)
    return int(ExitCode.INTERRUPTED if told == signal.SIGINT else ExitCode.REQUEUE)
