"""Following submitted jobs to their ends, and ending them when the one who follows is told to stop.

What is followed goes on without its follower: a submitter that is killed leaves its jobs as they are. Told to stop
(Ctrl-C, SIGTERM) it asks its jobs to save and end, and waits for that; told twice it cancels them and leaves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from primus_hydra.errors import HostError
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import JobLook, Submission
from primus_hydra.slurm.cancel import ask_to_save, cancel
from primus_hydra.slurm.client import Call, call
from primus_hydra.slurm.outcome import JobOutcome, end_of_job, outcome_of
from primus_hydra.slurm.state import look_at, look_closely

TICK_S = 0.2
ENDING_S = 60.0
"""What a job may need beyond the grace of a stop: its launcher ends the ranks and looks at the checkpoints."""
_ASK_EVERY_S = (1.0, 10.0)
"""The shortest and the longest pause between two questions; it grows with the time that jobs are waited for."""
_GROWTH = 60.0
_SETTLE_S = 2.0
"""A job that is requeued may be seen as ended for a moment."""
_OFTEN_REQUEUED = frozenset({"NODE_FAIL", "PREEMPTED"})
"""Ends after which Slurm starts a job again, whatever its run has said."""


@dataclass(frozen=True, kw_only=True)
class Followed:
    """A job to follow: its run, its submission, and how long it may take to save when it is told to end."""

    paths: RunPaths
    submission: Submission
    grace_s: float


class Screen(Protocol):
    """Where is told what happens, and what is done between two questions."""

    def say(self, job: Followed, text: str) -> None:
        """Tell something of one job."""

    def tick(self) -> None:
        """Show what is new in the runs."""


@dataclass(frozen=True, kw_only=True)
class Waited:
    """How the jobs ended, by job id; `told` is the signal that ended the waiting."""

    outcomes: Mapping[str, JobOutcome]
    told: int | None = None


def wait_for(jobs: Sequence[Followed], screen: Screen, ask: Call = call) -> Waited:
    """Follow jobs until all have ended; returns early only when told twice to stop."""
    with _signals() as told:
        return _Waiting(jobs, screen, told, ask).run()


class JobWatch:
    """What is known of one job, and what a new look at it is worth telling."""

    def __init__(self) -> None:
        self.look = JobLook(word="unknown")
        self._was_running = False
        self._ended_since: float | None = None

    def take(self, look: JobLook, now: float) -> str | None:
        """Take a look at the job; return what to say of it, None if nothing changed."""
        before, self.look = self.look, look
        self._ended_since = (self._ended_since or now) if look.word in ("ended", "gone") else None
        if (look.word, look.reason, look.nodes) == (before.word, before.reason, before.nodes):
            return None
        requeued = look.word == "pending" and self._was_running
        self._was_running = (self._was_running or look.word in ("running", "completing")) and not requeued
        if requeued:
            return f"went back into the queue ({_waits(look)})"
        return _WORDS[look.word](look)

    def over(self, now: float) -> bool:
        """Whether the job has ended for good."""
        return self._ended_since is not None and now - self._ended_since >= _SETTLE_S


def _waits(look: JobLook) -> str:
    return f"waits: {look.reason}" if look.reason else "waits for its turn"


def _runs(look: JobLook) -> str:
    return f"runs on {look.nodes}" if look.nodes else "runs"


_WORDS: Mapping[str, Callable[[JobLook], str | None]] = {
    "pending": _waits,
    "running": _runs,
    "completing": lambda look: None,
    "ended": lambda look: None,
    "gone": lambda look: None,
    "unknown": lambda look: f"Slurm cannot be asked ({look.reason}); the job goes on, and is asked for again",
}


class _Waiting:
    """The jobs that are waited for."""

    def __init__(self, jobs: Sequence[Followed], screen: Screen, told: list[int], ask: Call) -> None:
        self._jobs = {job.submission.job_id: job for job in jobs}
        self._watches = {job_id: JobWatch() for job_id in self._jobs}
        self._outcomes: dict[str, JobOutcome] = {}
        self._screen = screen
        self._told = told
        self._ask = ask
        self._began = time.monotonic()
        self._next = 0.0
        self._stopping_until: float | None = None

    def run(self) -> Waited:
        while self._open():
            self._heed()
            if len(self._told) > 1:
                self._cancel()
                break
            if time.monotonic() >= self._next:
                self._look()
            self._screen.tick()
            time.sleep(TICK_S)
        return Waited(outcomes=self._outcomes, told=self._told[0] if self._told else None)

    def _open(self) -> list[Followed]:
        return [job for job_id, job in self._jobs.items() if job_id not in self._outcomes]

    def _look(self) -> None:
        looks = look_at([job.submission for job in self._open()], self._ask)
        now = time.monotonic()
        for job_id, look in looks.items():
            job, watch = self._jobs[job_id], self._watches[job_id]
            text = watch.take(look, now)
            if text is not None:
                self._screen.say(job, text)
            if look.word in ("ended", "gone") and self._is_over(job, watch, now):
                self._outcomes[job_id] = self._outcome(job, look)
        self._next = now + self._pause(now)

    def _is_over(self, job: Followed, watch: JobWatch, now: float) -> bool:
        """Whether a job that is seen as ended has ended for good: its run said so, or it stays like that."""
        told = self._stopping_until is not None or end_of_job(job.paths, job.submission) is not None
        return (told and watch.look.state not in _OFTEN_REQUEUED) or watch.over(now)

    def _pause(self, now: float) -> float:
        """Ask often while something is about to change, and seldom while jobs wait for days."""
        shortest, longest = _ASK_EVERY_S
        words = {watch.look.word for job_id, watch in self._watches.items() if job_id not in self._outcomes}
        if self._stopping_until is not None or words & {"ended", "gone", "completing"}:
            return shortest
        return min(longest, max(shortest, (now - self._began) / _GROWTH))

    def _outcome(self, job: Followed, look: JobLook) -> JobOutcome:
        end = end_of_job(job.paths, job.submission)
        closer = look_closely(job.submission, self._ask) if end is None and look.word == "ended" else look
        return outcome_of(job.submission, closer if closer.word == "ended" else look, end)

    def _heed(self) -> None:
        """Do what a signal asks for, and cancel what has not ended in time."""
        if self._told and self._stopping_until is None:
            grace_s = max(job.grace_s for job in self._open())
            self._stopping_until = time.monotonic() + grace_s + ENDING_S
            for job in self._open():
                self._ask_to_save(job)
            self._next = 0.0
        elif self._stopping_until is not None and time.monotonic() > self._stopping_until:
            self._cancel()
            self._stopping_until = time.monotonic() + ENDING_S

    def _ask_to_save(self, job: Followed) -> None:
        try:
            look = ask_to_save(job.paths, job.submission, _me(), self._ask)
        except HostError as error:
            self._screen.say(job, str(error))
            return
        ways = "cancelled, it had not begun" if look.word == "pending" else "asked to save and end"
        self._screen.say(job, f"{ways}; Ctrl-C again cancels it at once and leaves" if look.live else "has ended")

    def _cancel(self) -> None:
        for job in self._open():
            try:
                cancel(job.submission, self._ask)
                self._screen.say(job, "cancelled")
            except HostError as error:
                self._screen.say(job, str(error))


def _me() -> str:
    return f"process {os.getpid()} on {os.uname().nodename}"


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Gather SIGINT and SIGTERM in a list instead of ending by them."""
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
