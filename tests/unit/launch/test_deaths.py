"""The end of a rank is noticed when it comes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from primus_hydra.launch.deaths import Deaths


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_death_ends_the_wait_and_names_the_rank(sleepers: list[subprocess.Popen[bytes]]) -> None:
    deaths = Deaths({4: sleepers[0].pid, 5: sleepers[1].pid})
    assert not deaths.wait(0)

    sleepers[1].send_signal(signal.SIGKILL)

    assert deaths.wait(60)
    assert deaths.ended == {5}
    assert not deaths.wait(0), "a death is told once"
    deaths.close()


def test_a_rank_that_is_gone_already_has_ended() -> None:
    process = subprocess.Popen(["true"])
    process.wait()

    assert Deaths({0: process.pid}).ended == {0}


def test_where_the_kernel_cannot_tell_a_wait_is_a_sleep(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(pid: int) -> int:
        raise OSError("function not implemented")

    monkeypatch.setattr(os, "pidfd_open", unknown)
    deaths = Deaths({0: sleepers[0].pid})
    sleepers[0].kill()

    assert not deaths.wait(0.01)
    assert deaths.ended == set()


def test_what_is_closed_keeps_no_descriptor(sleepers: list[subprocess.Popen[bytes]]) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    deaths = Deaths({0: sleepers[0].pid, 1: sleepers[1].pid})
    deaths.close()

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
