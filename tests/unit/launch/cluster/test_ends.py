"""Many nodes, one end: the cause is told, not what followed from it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.launch.cluster.ends import NodeEnd, lost_node, merge, node_end, read_end
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.runtime.outcome import Outcome

HOSTS = ("a", "b", "c")
FINE = LaunchResult(exit_code=0, message="finished at step 9")


def end(node: int, code: int, message: str = "", **rest: Any) -> NodeEnd:
    return NodeEnd(node=node, exit_code=code, message=message, **{"time": 10.0, **rest})


def told(*ends: NodeEnd) -> LaunchResult:
    return merge(FINE, ends, HOSTS)


def test_all_nodes_that_finish_finish_the_job() -> None:
    result = told(end(0, 0), end(1, 0, restarts=2), end(2, 0))
    assert (result.exit_code, result.message, result.restarts) == (0, "finished at step 9", 2)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_rank_that_died_without_a_word_is_the_cause_of_what_others_say(order: tuple[int, ...]) -> None:
    ends = (
        end(0, 1, "rank 0 failed: connection reset", time=9.0, failed_rank=0),
        end(1, 137, "rank 1 was killed", time=9.5, silent=True, failed_rank=1, log="/r/rank-1.log"),
        end(2, 1, "ended with the job", followed=True),
    )
    result = told(*(ends[index] for index in order))
    assert (result.exit_code, result.failed_rank, result.log) == (137, 1, Path("/r/rank-1.log"))
    assert result.message == "rank 1 was killed (on b)"


def test_of_those_that_speak_the_first_is_the_cause() -> None:
    result = told(end(0, 1, "reset", time=9.2), end(1, 7, "out of memory", time=9.1), end(2, 1, followed=True))
    assert (result.exit_code, result.message) == (7, "out of memory (on b)")


def test_a_lost_node_is_the_cause_of_all_else() -> None:
    result = told(end(0, 1, "reset", time=9.0, silent=True), lost_node(1, "b", now=12.0), end(2, 1, followed=True))
    assert result.exit_code == 128 + signal.SIGKILL
    assert result.message.startswith("b (node 1 of the job) was lost")


def test_a_stop_that_all_have_saved_is_a_stop() -> None:
    result = told(end(0, 75), end(1, 75, told=signal.SIGUSR2), end(2, 75))
    assert (result.exit_code, result.signal) == (75, signal.SIGUSR2)


def test_a_node_tells_its_end_with_the_moment_of_the_failure() -> None:
    said = Outcome(rank=3, status="failed", restart=0, time=5.0, message="x", exit_code=7)
    spoken = node_end(1, LaunchResult(exit_code=7, message="x", outcomes=(said,), failed_rank=3), now=8.0)
    assert (spoken.time, spoken.silent, spoken.failed) == (5.0, False, True)
    silent = node_end(1, LaunchResult(exit_code=137, message="x", failed_rank=3), now=8.0)
    assert (silent.time, silent.silent) == (8.0, True)
    followed = node_end(1, LaunchResult(exit_code=1, message="x", followed=True), now=8.0)
    assert not followed.failed
    assert read_end(silent.to_json()) == silent
