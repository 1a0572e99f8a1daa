"""How an attempt is judged from what is left of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.launch.verdict import Evidence, judge
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.outcome import Outcome

PATHS = RunPaths(Path("/run"))


def finished(rank: int, step: int = 9) -> Outcome:
    return Outcome(rank=rank, status="finished", step=step)


def stopped(rank: int, step: int = 5) -> Outcome:
    return Outcome(rank=rank, status="stopped", step=step)


def failed(rank: int, time: float, code: int = 1, message: str = "broken") -> Outcome:
    return Outcome(rank=rank, status="failed", exit_code=code, message=message, time=time)


def evidence(*outcomes: Outcome, **more: Any) -> Evidence:
    return Evidence(ranks=(0, 1), outcomes={outcome.rank: outcome for outcome in outcomes}, **more)


TABLE = [
    ("all finished", evidence(finished(0), finished(1)), 0, None),
    ("finished although a signal came", evidence(finished(0), finished(1), signal=signal.SIGINT), 0, None),
    ("died at exit", evidence(finished(0), finished(1), exit_codes={1: -6}, own_exit_code=1), 0, None),
    ("stopped by a scheduler", evidence(stopped(0), stopped(1), signal=signal.SIGTERM), 75, None),
    ("stopped by a person", evidence(stopped(0), stopped(1), signal=signal.SIGINT), 130, None),
    ("stopped, joined", evidence(stopped(0), stopped(1), signal=signal.SIGINT, joined=True), 75, None),
    ("stopped by a signal to a rank", evidence(stopped(0), stopped(1)), 75, None),
    ("at once", evidence(signal=signal.SIGINT, ended="at once"), 130, None),
    ("grace over", evidence(stopped(0), signal=signal.SIGTERM, ended="after the grace"), 143, None),
    ("raised first", evidence(failed(0, 2.0), failed(1, 1.0)), 1, 1),
    ("user error", evidence(failed(0, 1.0, code=2), failed(1, 2.0, code=2)), 2, 0),
    ("lost beats its echo", evidence(failed(0, 1.0), lost=1, exit_codes={0: 1, 1: 7}), 7, 1),
    (
        "seen dead with the one that it waited for",
        evidence(lost=0, lost_with=(1,), exit_codes={1: 7}, own_exit_code=1),
        7,
        1,
    ),
    ("left with zero, the other killed for it", evidence(lost=1, exit_codes={0: -9}, own_exit_code=1), 1, 1),
    ("killed from outside", evidence(failed(0, 1.0), lost=1, exit_codes={1: -9}), 137, 1),
    ("left with zero", evidence(finished(0), lost=1, exit_codes={}), 1, 1),
    ("left with zero, unseen", evidence(finished(0), own_exit_code=0), 1, 1),
    ("agent killed", evidence(own_exit_code=-9), 137, None),
    ("agent killed, a rank seen first", evidence(lost=0, own_exit_code=-9), 137, None),
    ("rank killed alone", evidence(finished(1), lost=0, exit_codes={0: -9}, own_exit_code=-9), 137, 0),
]


@pytest.mark.parametrize(("what", "given", "code", "rank"), TABLE, ids=[row[0] for row in TABLE])
def test_the_verdict(what: str, given: Evidence, code: int, rank: int | None):
    result = judge(given, PATHS)
    assert (result.exit_code, result.failed_rank) == (code, rank)
    assert result.message
    assert (result.log is not None) == (code in (1, 2, 7, 137))


def test_a_rank_that_never_opened_its_log_is_read_of_in_the_agent_s():
    known = {"lost": None, "exit_codes": {1: 1}, "own_exit_code": 1}
    logs = [judge(evidence(unnamed=frozenset(unnamed), **known), PATHS).log for unnamed in ((), (0,), (0, 1))]
    assert logs == [PATHS.rank_log(1), PATHS.rank_log(1), PATHS.agent_log]


def test_a_death_after_the_work_is_told():
    message = judge(evidence(finished(0), finished(1), exit_codes={1: -6}), PATHS).message
    assert message == "finished at step 9; rank 1 was killed by SIGABRT after its work was done"


def test_what_a_person_can_mend_is_said_without_the_rank():
    assert judge(evidence(failed(0, 1.0, code=2, message="a.b: wrong")), PATHS).message == "a.b: wrong"
