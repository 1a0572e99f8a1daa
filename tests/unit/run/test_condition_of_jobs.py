"""How a run stands whose newest start is a job, held against what a scheduler says of it."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from primus_hydra.run.condition import condition_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.process import start_mark
from primus_hydra.run.state import RunState, Status, write_state
from primus_hydra.run.submission import (
    JobLook,
    JobStanding,
    JobWord,
    Submission,
    newest_submission,
    read_submission,
    write_submission,
)

SUBMITTED = time.time() - 1000


def submission(number: int = 1) -> Submission:
    return Submission(number=number, job_id="12", script="/s.sh", submitted_at=SUBMITTED, host="login", nodes=2)


def word(paths: RunPaths, job_word: JobWord) -> str:
    job = JobStanding(submission=submission(), look=JobLook(word=job_word, state=job_word.upper()))
    return condition_of(paths, job=job).word


def leave(paths: RunPaths, status: Status, after_s: float) -> None:
    """Leave the state of an attempt that wrote it so many seconds after the submission."""
    moment = SUBMITTED + after_s
    write_state(paths.state, RunState(status=status, step=3, steps=9, attempt=1, started_at=moment, updated_at=moment))


def hold(paths: RunPaths, host: str, pid: int, after_s: float) -> None:
    paths.root.mkdir(parents=True, exist_ok=True)
    holder = {
        "host": host,
        "pid": pid,
        "since": SUBMITTED + after_s,
        "command": "primus_hydra",
        "mark": start_mark(pid),
    }
    paths.lock.write_text(json.dumps(holder))


@pytest.mark.parametrize(
    ("job_word", "expected"),
    [("pending", "queued"), ("running", "starting"), ("completing", "starting"), ("ended", "cancelled"),
     ("gone", "cancelled")],
)  # fmt: skip
def test_before_its_first_attempt_a_run_stands_as_its_job_does(
    tmp_path: Path, job_word: JobWord, expected: str
) -> None:
    assert word(RunPaths(tmp_path), job_word) == expected


def test_a_launcher_on_a_node_is_at_work_while_its_job_runs_however_silent_it_is(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    leave(paths, "running", 10)
    hold(paths, "node1", 77, 9.5)

    assert condition_of(paths).word == "silent"
    assert word(paths, "running") == "running"
    assert word(paths, "ended") == "died"
    assert word(paths, "gone") == "died"
    assert word(paths, "unknown") == "silent"
    assert word(paths, "pending") == "queued"


@pytest.mark.parametrize("status", ["finished", "failed", "saved"])
def test_a_run_that_said_how_it_ended_has_ended_so(tmp_path: Path, status: Status) -> None:
    paths = RunPaths(tmp_path)
    leave(paths, status, 10)

    assert {word(paths, job_word) for job_word in ("ended", "gone", "completing", "unknown")} == {status}


def test_a_job_that_left_the_queue_unused_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    leave(paths, "saved", -500)

    assert word(paths, "ended") == "saved"
    assert word(paths, "running") == "starting"


def test_a_launcher_that_lives_here_is_not_the_schedulers_to_judge(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    leave(paths, "running", 20)
    hold(paths, socket.gethostname(), os.getpid(), 19.5)

    assert word(paths, "gone") == "running"


def test_the_newest_submission_that_can_be_read_is_the_one(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    for number in (1, 9, 10):
        write_submission(paths.submission(number).record, submission(number))
    paths.submission(11).root.mkdir()
    paths.submission(12).root.mkdir()
    paths.submission(12).record.write_text("torn")

    assert newest_submission(paths) == submission(10)
    assert read_submission(paths, 12) is None
    assert newest_submission(RunPaths(tmp_path / "other")) is None
