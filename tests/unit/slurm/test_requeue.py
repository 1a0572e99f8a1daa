"""A job that has saved goes back into the queue where Slurm does not put it there by itself."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from primus_hydra.config.schema import SlurmConfig
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.slurm import ours, requeue
from primus_hydra.slurm.client import Answer
from primus_hydra.slurm.requeue import go_back
from tests.unit.slurm.fakes import AWAY, shown

NODE = ClusterNode(job_id="12", restart=1, index=0, hosts=("a", "b"), port=1)
REQUEUED = ["scontrol", "requeue", "12"]
MISSING = Answer(code=None)


class Slurm:
    """Answers one thing after the other, the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str]) -> Answer:
        self.asked.append(list(argv))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "AGAIN_S", 0.0)
    monkeypatch.setattr(requeue, "LIMIT_S", 0.2)


@pytest.mark.parametrize("told", [signal.SIGUSR2, signal.SIGTERM])
def test_a_job_that_works_and_was_told_to_save_goes_back(told: signal.Signals) -> None:
    slurm = Slurm(shown("RUNNING", restarts=1), Answer(code=0))

    assert go_back(NODE, SlurmConfig(), told, slurm)
    assert slurm.asked[-1] == REQUEUED


@pytest.mark.parametrize("state", ["COMPLETING", "CANCELLED", "PENDING", "TIMEOUT", "PREEMPTED"])
def test_a_job_that_slurm_has_ended_or_put_back_is_left_alone(state: str) -> None:
    slurm = Slurm(shown(state))

    assert not go_back(NODE, SlurmConfig(), signal.SIGTERM, slurm)
    assert REQUEUED not in slurm.asked


@pytest.mark.parametrize(
    ("slurm", "told"),
    [
        (SlurmConfig(requeue=False), signal.SIGUSR2),
        (SlurmConfig(max_requeues=1), signal.SIGUSR2),
        (SlurmConfig(), signal.SIGINT),
    ],
)
def test_a_job_that_may_not_go_on_stays(slurm: SlurmConfig, told: signal.Signals) -> None:
    asked = Slurm(shown("RUNNING", restarts=1), Answer(code=0))

    assert not go_back(NODE, slurm, told, asked)
    assert REQUEUED not in asked.asked


def test_another_start_of_the_job_is_not_put_back() -> None:
    slurm = Slurm(shown("RUNNING", restarts=2))

    assert not go_back(NODE, SlurmConfig(), signal.SIGTERM, slurm)
    assert REQUEUED not in slurm.asked


def test_a_controller_that_is_away_is_waited_for() -> None:
    slurm = Slurm(AWAY, AWAY, shown("RUNNING", restarts=1), AWAY, Answer(code=0))

    assert go_back(NODE, SlurmConfig(), signal.SIGUSR2, slurm)


@pytest.mark.parametrize("answer", [AWAY, MISSING, Answer(code=1, words="Access/permission denied")])
def test_what_cannot_be_put_back_is_told(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    assert not go_back(NODE, SlurmConfig(), signal.SIGUSR2, Slurm(answer))
    assert f"could not be put back into the queue: {answer.words}" in capsys.readouterr().out
