"""A task that Slurm knows no more must not end by itself: its srun would end the job's new start."""

from __future__ import annotations

import pytest

from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.slurm import ours
from primus_hydra.slurm.client import Answer
from primus_hydra.slurm.ours import await_end_if_over, standing
from tests.unit.slurm.fakes import AWAY, NO_SUCH_JOB, says, shown

NODE = ClusterNode(job_id="12", restart=1, index=0, hosts=("a", "b"), port=1)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (shown("RUNNING", restarts=1), "works"),
        (shown("RUNNING", restarts=2), "over"),
        (shown("PENDING", restarts=1), "over"),
        (shown("CANCELLED", restarts=1), "over"),
        (AWAY, "unknown"),
        (NO_SUCH_JOB, "unknown"),
        (Answer(code=None), "unknown"),
    ],
)
def test_only_the_present_start_of_a_job_works(answer: Answer, word: str) -> None:
    assert standing(NODE, says(answer)) == word


def test_a_task_that_was_cut_off_waits_until_slurm_answers_and_then_to_be_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, pauses = [AWAY, AWAY, shown("RUNNING", restarts=2)], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 4:
            raise KeyboardInterrupt  # as SIGKILL

    monkeypatch.setattr(ours.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        await_end_if_over(NODE, lambda argv: answers.pop(0))

    assert answers == []
    assert "waiting for it to end this task" in capsys.readouterr().out


def test_a_task_whose_start_works_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours.time, "sleep", lambda seconds: pytest.fail("it waits"))
    await_end_if_over(NODE, says(shown("RUNNING", restarts=1)))
