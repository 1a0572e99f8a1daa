"""The jobs that a run was given to a scheduler as, and what is seen of them there.

Whether a job lives is the scheduler's to say; here stands only what was noted, and how an answer is held against it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from primus_hydra.run.atomic import read_json, write_json
from primus_hydra.run.paths import RunPaths

JobWord = Literal["pending", "running", "completing", "ended", "gone", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One job: its number at the scheduler, its script, and when and from where it was submitted.

    `code` is the copy of the code that it runs, None where it runs what is installed.
    """

    number: int
    job_id: str
    script: str
    submitted_at: float
    host: str
    nodes: int
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobLook:
    """What the scheduler says of a job at one moment.

    `gone`: it does not know the job any more; `unknown`: it could not be asked, and `reason` says why. `state` is its
    own word. `exit_code` is the job's, 128+n for signal n; None where it was not asked for or there is none yet.
    """

    word: JobWord
    state: str = ""
    reason: str = ""
    nodes: str = ""
    restarts: int = 0
    exit_code: int | None = None

    @property
    def live(self) -> bool:
        """Whether the job waits or works."""
        return self.word in ("pending", "running", "completing")


@dataclass(frozen=True, kw_only=True)
class JobStanding:
    """The newest job of a run, and what is seen of it."""

    submission: Submission
    look: JobLook


def write_submission(path: Path, submission: Submission) -> None:
    """Note a job that the scheduler took."""
    write_json(path, asdict(submission))


def read_submission(paths: RunPaths, number: int) -> Submission | None:
    """Return a submission; None where there is no note, or one of another program."""
    data = read_json(paths.submission(number).record)
    try:
        return None if data is None else _submission_of(data)
    except (KeyError, TypeError, ValueError):
        return None


def newest_submission(paths: RunPaths) -> Submission | None:
    """Return the newest job of a run; None if it was never submitted."""
    numbers: list[int] = []
    with contextlib.suppress(OSError):
        numbers = paths.submission_numbers()
    found = (read_submission(paths, number) for number in reversed(numbers))
    return next((submission for submission in found if submission is not None), None)


def ask_for_stop(paths: RunPaths, submission: Submission, by: str) -> None:
    """Leave word that the job shall end for good once it has saved; a signal alone may be the scheduler's."""
    write_json(paths.submission(submission.number).stop, {"by": by, "time": time.time()})


def stop_is_asked(paths: RunPaths, number: int) -> bool:
    """Whether somebody asked this submission to end for good."""
    return paths.submission(number).stop.exists()


def _submission_of(data: Mapping[str, object]) -> Submission:
    code = data.get("code")
    return Submission(
        number=int(str(data["number"])),
        job_id=str(data["job_id"]),
        script=str(data["script"]),
        submitted_at=float(str(data["submitted_at"])),
        host=str(data["host"]),
        nodes=int(str(data["nodes"])),
        code=None if code is None else str(code),
    )
