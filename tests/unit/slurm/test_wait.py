from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from primus_hydra.run.history import AttemptEnd, write_end
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import stop_is_asked
from primus_hydra.slurm import wait
from primus_hydra.slurm.client import Answer
from primus_hydra.slurm.wait import Followed, Waited, wait_for
from tests.unit.slurm.fakes import AWAY, listed, shown, submission

PENDING = listed(("12", "PENDING", "Resources", ""))
RUNNING = listed(("12", "RUNNING", "None", "node1"))
FAILED = listed(("12", "FAILED", "NonZeroExitCode", "node1"))
CANCELLED = listed(("12", "CANCELLED", "None", ""))


class Story:
    """A cluster that answers squeue one thing after the other; what it is told to do is in `done`."""

    def __init__(self, *answers: Answer, code: str = "7:0", after_cancel: Answer = CANCELLED) -> None:
        self.answers = list(answers)
        self.code = code
        self.after_cancel = after_cancel
        self.done: list[list[str]] = []

    def __call__(self, argv: Sequence[str]) -> Answer:
        if argv[0] == "scancel":
            self.done.append(list(argv))
            self.answers = [self.after_cancel]
            return Answer(code=0)
        if argv[0] == "scontrol":
            return shown("FAILED", code=self.code) if self.answers[0] is FAILED else shown("CANCELLED", code="0:15")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Heard:
    """A screen that remembers, and that sends us signals at its second tick."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.said: list[str] = []
        self.ticks = 0
        self._signals = signals

    def say(self, job: Followed, text: str) -> None:
        self.said.append(text)

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == 2:
            for number in self._signals:
                os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "TICK_S", 0.001)
    monkeypatch.setattr(wait, "_ASK_EVERY_S", (0.0, 0.0))
    monkeypatch.setattr(wait, "_SETTLE_S", 0.02)


def followed(folder: Path, story: Story, *signals: signal.Signals) -> tuple[Waited, Heard]:
    heard = Heard(*signals)
    job = Followed(paths=RunPaths(folder), submission=submission(), grace_s=0.1)
    return wait_for([job], heard, story), heard


def test_what_happens_to_a_job_is_told_once(tmp_path: Path) -> None:
    waited, heard = followed(tmp_path, Story(PENDING, PENDING, RUNNING, RUNNING, FAILED))

    assert heard.said == ["waits: Resources", "runs on node1"]
    assert waited.outcomes["12"].exit_code == 7


def test_a_requeue_is_no_end(tmp_path: Path) -> None:
    _, heard = followed(tmp_path, Story(RUNNING, FAILED, listed(("12", "PENDING", "BeginTime", "")), RUNNING, FAILED))

    assert heard.said == ["runs on node1", "went back into the queue (waits: BeginTime)", "runs on node1"]


def test_a_controller_that_is_away_is_no_end_and_is_told(tmp_path: Path) -> None:
    waited, heard = followed(tmp_path, Story(RUNNING, AWAY, AWAY, RUNNING, FAILED))

    assert [text for text in heard.said if "cannot be asked" in text] == [
        f"Slurm cannot be asked ({AWAY.words}); the job goes on, and is asked for again"
    ]
    assert waited.outcomes["12"].exit_code == 7


def test_the_runs_own_word_counts_more_than_slurms(tmp_path: Path) -> None:
    end = AttemptEnd(status="failed", exit_code=9, message="rank 3 died", step=2, restarts=0, time=200.0)
    write_end(RunPaths(tmp_path).attempt(1).ended, end)
    waited, _ = followed(tmp_path, Story(RUNNING, FAILED, code="137:0"))

    assert (waited.outcomes["12"].exit_code, waited.outcomes["12"].message) == (9, "rank 3 died")


def test_the_word_of_an_attempt_before_the_job_says_nothing_of_it(tmp_path: Path) -> None:
    end = AttemptEnd(status="finished", exit_code=0, message="long ago", step=2, restarts=0, time=50.0)
    write_end(RunPaths(tmp_path).attempt(1).ended, end)
    waited, _ = followed(tmp_path, Story(RUNNING, FAILED))

    assert waited.outcomes["12"].exit_code == 7


def test_ctrl_c_asks_a_job_that_runs_to_save_and_waits(tmp_path: Path) -> None:
    story = Story(RUNNING, after_cancel=FAILED, code="75:0")
    waited, heard = followed(tmp_path, story, signal.SIGINT)

    assert story.done == [["scancel", "--signal=USR2", "12"]]
    assert stop_is_asked(RunPaths(tmp_path), 1)
    assert (waited.told, waited.outcomes["12"].exit_code) == (signal.SIGINT, 75)
    assert any("asked to save" in text for text in heard.said)


def test_ctrl_c_takes_a_job_that_waits_out_of_the_queue(tmp_path: Path) -> None:
    story = Story(PENDING)
    waited, _ = followed(tmp_path, story, signal.SIGINT)

    assert story.done == [["scancel", "12"]]
    assert waited.outcomes["12"].exit_code == 130


def test_a_job_that_does_not_save_in_time_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "ENDING_S", 0.05)
    story = Story(RUNNING, after_cancel=RUNNING)
    story_call = story.__call__

    def ask(argv: Sequence[str]) -> Answer:
        answer = story_call(argv)
        if argv == ["scancel", "12"]:
            story.answers = [CANCELLED]
        return answer

    heard = Heard(signal.SIGTERM)
    job = Followed(paths=RunPaths(tmp_path), submission=submission(), grace_s=0.05)
    waited = wait_for([job], heard, ask)

    assert story.done == [["scancel", "--signal=USR2", "12"], ["scancel", "12"]]
    assert waited.told == signal.SIGTERM


def test_a_second_ctrl_c_cancels_and_leaves_at_once(tmp_path: Path) -> None:
    story = Story(RUNNING, after_cancel=RUNNING)
    waited, _ = followed(tmp_path, story, signal.SIGINT, signal.SIGTERM)

    assert story.done[-1] == ["scancel", "12"]
    assert waited.outcomes == {}
