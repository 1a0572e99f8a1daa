"""The first node's work around the attempt: what comes of a signal, and that the job goes back before others end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primus_hydra import node as node_task
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.early import HEARD
from primus_hydra.run.history import AttemptEnd, write_end
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import ask_for_stop
from tests.support import make_job
from tests.unit.slurm.fakes import submission

NODE = ClusterNode(job_id="12", restart=0, index=0, hosts=("a",), port=1)


class Work:
    """A task that does what a test says."""

    def __init__(self, do: Callable[[], int]) -> None:
        self.run = lambda composed: do()


@pytest.fixture
def went_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    told: list[int] = []
    before = {number: signal.getsignal(number) for number in HEARD}
    monkeypatch.setattr(node_task, "go_back", lambda node, slurm, number: told.append(number))
    monkeypatch.setattr(node_task, "_composed", lambda *arguments, **more: None)
    yield told
    for number, handler in before.items():
        signal.signal(number, handler)


def lead(monkeypatch: pytest.MonkeyPatch, folder: Path, do: Callable[[], int]) -> int:
    monkeypatch.setattr(node_task, "make_task", lambda task: Work(do))
    return node_task.lead(NODE, make_job(), RunPaths(folder), 1)


def saved_by(folder: Path, number: int) -> Callable[[], int]:
    def work() -> int:
        end = AttemptEnd(status="saved", exit_code=75, message="", step=5, restarts=0, time=1.0, signal=number)
        paths = RunPaths(folder).attempt(1)
        paths.root.mkdir(parents=True)
        write_end(paths.ended, end)
        return 75

    return work


def test_a_signal_while_data_is_prepared_puts_the_job_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, went_back: list[int]
) -> None:
    def work() -> int:
        os.kill(os.getpid(), signal.SIGUSR2)
        raise AssertionError("the signal was not obeyed")

    assert lead(monkeypatch, tmp_path, work) == 75
    assert went_back == [signal.SIGUSR2]


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_a_run_that_was_told_to_save_puts_the_job_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, went_back: list[int], number: int
) -> None:
    assert lead(monkeypatch, tmp_path, saved_by(tmp_path, number)) == 75
    assert went_back == [number]


def test_a_run_that_somebody_asked_to_stop_for_good_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, went_back: list[int]
) -> None:
    RunPaths(tmp_path).submission(1).root.mkdir(parents=True)
    ask_for_stop(RunPaths(tmp_path), submission(), "me")

    assert lead(monkeypatch, tmp_path, saved_by(tmp_path, signal.SIGUSR2)) == 75
    assert went_back == []


def test_a_run_that_failed_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, went_back: list[int]) -> None:
    assert lead(monkeypatch, tmp_path, lambda: 7) == 7
    assert went_back == []
