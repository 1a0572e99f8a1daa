"""One process of a hook: its lines, its time, its signals, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from primus_hydra.hooks import process as module
from primus_hydra.hooks.process import Ended, Stops, run_process


def run(script: str, *, timeout_s: float = 20, stops: Stops | None = None) -> tuple[Ended, list[tuple[str, bytes]]]:
    lines: list[tuple[str, bytes]] = []
    ended = run_process(
        ["bash", "-c", script],
        environment=os.environ,
        timeout_s=timeout_s,
        stops=stops or Stops(),
        on_line=lambda stream, line: lines.append((stream, line)),
    )
    return ended, lines


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def soon(condition: Callable[[], Any]) -> bool:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(condition())


def test_lines_arrive_whole_and_in_order_also_the_last_without_an_end():
    ended, lines = run("echo a; echo b >&2; printf 'c\\n\\nd'; exit 7")
    assert ended.code == 7
    assert [line for stream, line in lines if stream == "out"] == [b"a", b"c", b"", b"d"]
    assert [line for stream, line in lines if stream == "err"] == [b"b"]


def test_much_output_is_neither_lost_nor_a_deadlock():
    ended, lines = run("yes 0123456789 | head -n 50000; yes x | head -n 50000 >&2")
    assert ended.code == 0
    assert len(lines) == 100_000


def test_a_line_without_an_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_LINE", 100_000)
    _, lines = run("head -c 1000000 /dev/zero | tr '\\0' x")
    assert len(lines) > 1
    assert sum(len(line) for _, line in lines) == 1_000_000


def test_there_is_no_input_and_the_session_is_its_own():
    _, lines = run("cat; ps -o sid= -p $$ | tr -d ' '; echo $$")
    assert lines[0][1] == lines[1][1]


def test_a_process_that_takes_too_long_ends_with_its_children(tmp_path):
    ended, _ = run(f"sleep 300 & echo $! >{tmp_path}/pid; wait", timeout_s=0.5)
    assert ended.timed_out
    assert ended.seconds < module.GRACE_S
    assert soon(lambda: not lives(int((tmp_path / "pid").read_text())))


def test_a_process_that_does_not_want_to_end_is_killed(monkeypatch):
    monkeypatch.setattr(module, "GRACE_S", 0.3)
    ended, _ = run("trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.3)
    assert ended.timed_out
    assert ended.code == -signal.SIGKILL


def test_what_never_stops_talking_is_still_stopped():
    ended, _ = run("yes", timeout_s=0.5)
    assert ended.timed_out


def test_what_is_left_of_the_session_ends_with_it_but_another_session_does_not(tmp_path):
    note = f"sh -c 'echo $$ >{tmp_path}/b; exec sleep 300'"
    ended, lines = run(f"sleep 300 & echo $! >{tmp_path}/a; setsid {note} & sleep 0.5; echo done")
    other = int((tmp_path / "b").read_text())
    try:
        assert ended.code == 0
        assert ended.seconds < 10  # it did not wait for the one that still holds the pipe
        assert lines == [("out", b"done")]
        assert soon(lambda: not lives(int((tmp_path / "a").read_text())))
        assert lives(other)
    finally:
        os.kill(other, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP])
def test_a_signal_to_the_launcher_stops_the_hook(number):
    with Stops.listening() as stops:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), number)).start()
        ended, _ = run("sleep 300", stops=stops)
    assert ended.stopped_by == number
    assert not ended.timed_out
    assert ended.code == -signal.SIGTERM


def test_handlers_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with Stops.listening():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_error_of_the_listener_ends_the_process(tmp_path):
    def fail(stream: str, line: bytes) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match="go"):
        run_process(
            ["bash", "-c", f"echo $$ >{tmp_path}/pid; echo go; sleep 300"],
            environment=os.environ,
            timeout_s=20,
            stops=Stops(),
            on_line=fail,
        )
    assert soon(lambda: not lives(int((tmp_path / "pid").read_text())))


LAUNCHER = """
import os, sys
from primus_hydra.hooks.process import Stops, run_process
argv = [sys.executable, "-m", "primus_hydra.hooks.tied", *sys.argv[1:]]
run_process(argv, environment=os.environ, timeout_s=60, stops=Stops(), on_line=lambda *_: None)
"""


def test_a_script_dies_with_a_launcher_that_was_killed(tmp_path: Path):
    script = f"echo $$ $PRIMUS_PARENT_PID >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 300"
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, "bash", "-c", script])
    assert soon((tmp_path / "pid").exists)
    (pid,) = (tmp_path / "pid").read_text().split()  # the launcher's own variable is not handed on
    launcher.kill()
    launcher.wait()
    assert soon(lambda: not lives(int(pid)))
