"""A process id is used again; the mark tells whose it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from primus_hydra.run import process
from primus_hydra.run.process import signal_process, start_mark


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(["sleep", "60"])
    yield started
    started.kill()
    started.wait()


def test_a_process_keeps_its_mark_and_two_processes_differ(child: subprocess.Popen[bytes]) -> None:
    assert start_mark(child.pid) == start_mark(child.pid) is not None
    assert start_mark(child.pid) != start_mark(os.getpid())


def test_a_process_that_ended_has_none_also_before_its_parent_took_note() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert start_mark(child.pid) is None  # a zombie
    child.communicate()
    assert start_mark(child.pid) is None


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_only_the_marked_process_gets_the_signal(
    has_descriptors: bool, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_descriptors:
        monkeypatch.setattr(process, "_open", lambda pid: None)
    mark = start_mark(child.pid)

    assert not signal_process(child.pid, "another:1", signal.SIGTERM)
    assert not signal_process(child.pid, None, signal.SIGTERM)
    assert child.poll() is None
    assert signal_process(child.pid, mark, signal.SIGTERM)
    assert child.wait(timeout=30) == -signal.SIGTERM
    assert not signal_process(child.pid, mark, signal.SIGTERM)
