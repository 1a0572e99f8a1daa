from __future__ import annotations

import pytest

from primus_hydra.slurm.client import Answer
from primus_hydra.slurm.outcome import outcome_of
from primus_hydra.slurm.state import look_at, look_closely
from tests.unit.slurm.fakes import AWAY, NO_SUCH_JOB, listed, says, shown, submission


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("PENDING", "pending"),
        ("REQUEUE_HOLD", "pending"),
        ("RUNNING", "running"),
        ("SUSPENDED", "running"),
        ("COMPLETING", "completing"),
        ("COMPLETED", "ended"),
        ("NODE_FAIL", "ended"),
        ("SOMETHING_NEW", "unknown"),
    ],
)
def test_each_of_slurms_states_has_a_word(state: str, word: str) -> None:
    assert look_at([submission()], says(listed(("12", state, "None", "node1"))))["12"].word == word


def test_many_jobs_are_asked_for_at_once_and_one_that_slurm_forgot_is_gone() -> None:
    asked = []

    def squeue(argv: list[str]) -> Answer:
        asked.append(argv)
        return listed(("12", "PENDING", "Resources", ""), ("14", "RUNNING", "None", "node3"))

    looks = look_at([submission("12"), submission("13"), submission("14")], squeue)

    assert len(asked) == 1
    assert "--jobs=12,13,14" in asked[0]
    assert [(looks[job].word, looks[job].reason) for job in ("12", "13", "14")] == [
        ("pending", "Resources"),
        ("gone", ""),
        ("running", ""),
    ]


def test_a_controller_that_is_away_makes_a_job_unknown_and_never_ended() -> None:
    for answer in (AWAY, Answer(code=None), Answer(code=None, words="timed out after 20 seconds")):
        assert look_at([submission()], says(answer))["12"].word == "unknown"
        assert look_closely(submission(), says(answer)).word == "unknown"


def test_a_job_that_slurm_does_not_know_any_more_is_gone() -> None:
    assert look_at([submission()], says(NO_SUCH_JOB))["12"].word == "gone"
    assert look_closely(submission(), says(NO_SUCH_JOB)).word == "gone"


def test_another_job_under_the_same_number_is_not_taken_for_ours() -> None:
    row = Answer(code=0, out="12|RUNNING|None|node1|/somebody/elses.sh\n")
    detail = Answer(code=0, out=shown("RUNNING").out.replace("/runs/mine", "/runs/other"))

    assert look_at([submission()], says(row))["12"].word == "gone"
    assert look_closely(submission(), says(detail)).word == "gone"


@pytest.mark.parametrize(
    ("state", "said", "code"), [("FAILED", "75:0", 75), ("CANCELLED", "0:15", 143), ("COMPLETED", "0:0", 0)]
)
def test_an_ended_job_has_its_exit_code(state: str, said: str, code: int) -> None:
    look = look_closely(submission(), says(shown(state, code=said, restarts=2)))

    assert (look.word, look.exit_code, look.restarts, look.nodes) == ("ended", code, 2, "node[1-2]")


def test_a_job_that_runs_has_no_exit_code_yet() -> None:
    assert look_closely(submission(), says(shown("RUNNING"))).exit_code is None


@pytest.mark.parametrize(
    ("state", "said", "code", "words"),
    [
        ("COMPLETED", "0:0", 0, "exit code 0"),
        ("FAILED", "7:0", 7, "exit code 7"),
        ("CANCELLED", "0:15", 130, "cancelled"),
        ("TIMEOUT", "0:0", 1, "time limit"),
        ("NODE_FAIL", "0:0", 1, "node failed"),
        ("OUT_OF_MEMORY", "0:9", 137, "memory"),
    ],
)
def test_a_run_that_left_no_word_ends_as_slurm_says(state: str, said: str, code: int, words: str) -> None:
    outcome = outcome_of(submission(), look_closely(submission(), says(shown(state, code=said))), None)

    assert outcome.exit_code == code
    assert words in outcome.message


def test_a_job_that_left_nothing_anywhere_has_failed() -> None:
    outcome = outcome_of(submission(), look_closely(submission(), says(NO_SUCH_JOB)), None)

    assert outcome.exit_code == 1
    assert "has not said how it ended" in outcome.message
