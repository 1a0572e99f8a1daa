"""How a run really stands: what its state says, held against the process that should be behind it.

A launcher that is killed leaves a state that says `running` for ever. Whether it lives is known on its own machine;
from elsewhere only its news tell.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from primus_hydra.run.atomic import read_json
from primus_hydra.run.lock import Holding, LockHolder, holding, life_of
from primus_hydra.run.metrics import newest_rows, number
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import RunState, read_state
from primus_hydra.run.submission import JobStanding

Word = Literal[
    "queued",
    "starting",
    "running",
    "silent",
    "saved",
    "finished",
    "failed",
    "interrupted",
    "cancelled",
    "died",
    "unknown",
]
SILENT_AFTER_S = 120.0
"""A launcher of another machine writes news every few seconds; without any for so long, nobody knows."""
_SAME_MOMENT_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A run at one moment.

    `queued`: its job waits at a scheduler; `cancelled`: that job is gone, and no attempt had begun in it; `starting`: a
    launcher holds the run and has not begun its attempt; `running`; `silent`: the launcher is on another machine and
    has not written for long; `died`: the launcher is gone and has not said how the run ended; `unknown`: the state
    cannot be read. The others are the run's own words. `holder` is who holds the run, or did when it died; `attempt`
    counts from 1, 0 before the first; `news_at` is seconds since the epoch. `job` is the run's newest job at a
    scheduler, where one was asked.
    """

    word: Word
    attempt: int
    state: RunState | None = None
    holder: LockHolder | None = None
    news_at: float | None = None
    job: JobStanding | None = None

    @property
    def live(self) -> bool:
        """Whether the run is at work as far as one can see."""
        return self.word in ("starting", "running")


def condition_of(paths: RunPaths, *, now: float | None = None, job: JobStanding | None = None) -> Condition:
    """Find out how a run stands; nothing is touched, and no file that is missing, torn or foreign is an error.

    `job` is what a scheduler says of the run's newest job: it knows better than a silence whether a launcher elsewhere
    lives.
    """
    moment = time.time() if now is None else now
    found = _condition(paths, moment)
    return found if job is None else replace(found, word=_word_with(found, job), job=job)


def _word_with(found: Condition, job: JobStanding) -> Word:
    """Return the word of a run whose newest job was looked at."""
    since = job.submission.submitted_at - _SAME_MOMENT_S
    # A launcher that somebody started here, beside the job or after it, is not the scheduler's to judge.
    if found.holder is not None and life_of(found.holder) == "alive":
        return found.word
    of_job = found.holder is not None and found.holder.since >= since
    told = found.state is not None and found.state.updated_at >= since
    match job.look.word:
        case "pending":
            return "queued"
        case "running" | "completing":
            at_work = found.word in ("running", "starting", "silent") and of_job
            return ("running" if told else "starting") if at_work or not told else found.word
        case "ended" | "gone" if found.word in ("starting", "running", "silent", "died"):
            return "died" if of_job or told else "cancelled"
    return found.word


def _condition(paths: RunPaths, moment: float) -> Condition:
    found = _look(paths, moment)
    # The next attempt may have begun between the two files.
    return _look(paths, moment) if found.word == "died" else found


def _look(paths: RunPaths, now: float) -> Condition:
    held = holding(paths.lock)  # before the state: a run that ends writes its state, then gives the lock back
    state = read_state(paths.state)
    attempt = _newest_attempt(paths)
    news_at = max(_news(paths, state, attempt), default=None)
    word = _word(held, state, now=now, news_at=news_at, damaged=state is None and paths.state.exists())
    return Condition(word=word, attempt=attempt, state=state, holder=held.holder, news_at=news_at)


def _word(held: Holding, state: RunState | None, *, now: float, news_at: float | None, damaged: bool) -> Word:
    holder = held.holder
    # The attempt notes its start just after it took the lock; a state from before is of another attempt.
    of_holder = holder is not None and state is not None and state.started_at >= holder.since - _SAME_MOMENT_S
    if held.life == "alive" or (held.life == "unknown" and now - (news_at or 0.0) <= SILENT_AFTER_S):
        return state.status if of_holder and state is not None else "starting"
    if state is not None and state.status != "running" and (of_holder or holder is None):
        return state.status
    if held.life == "unknown":
        return "silent"
    return "unknown" if damaged else "died"


def _news(paths: RunPaths, state: RunState | None, attempt: int) -> Iterator[float]:
    """Return the moments at which the run wrote of itself."""
    said = [state.updated_at] if state is not None else []
    said += [moment for row in newest_rows(paths.metrics, 1) if (moment := number(row, "time")) is not None]
    with contextlib.suppress(OSError):
        for node in paths.attempt(attempt).nodes():
            told = (read_json(node) or {}).get("time")
            said += [float(told)] if isinstance(told, (int, float)) else []
    return (moment for moment in said if math.isfinite(moment))


def _newest_attempt(paths: RunPaths) -> int:
    try:
        return max(paths.attempt_numbers(), default=0)
    except OSError:
        return 0
