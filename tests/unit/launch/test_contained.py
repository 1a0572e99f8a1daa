"""The first process in a container, run without one: what it hands on, and that it never outlives its launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from primus_hydra.launch import contained
from primus_hydra.launch.containment import as_process_code, chosen
from primus_hydra.run.process import start_mark

TIMEOUT_S = 60
ODD = {
    "LINES": "a\nb\n",
    "QUOTES": "' \" ` $HOME \\ %s",
    "EMPTY": "",
    "UNICODE": "日本 é",
    "COMMA": "a,b;c=d",
    "DASH": "-x",
}


def start(tmp_path: Path, argv: list[str], **handed: Any) -> subprocess.Popen[bytes]:
    said = {
        "environment": {},
        "python_path": [],
        "workdir": str(tmp_path),
        "begun": str(tmp_path / "begun"),
        "launcher": {"pid": os.getpid(), "mark": "another"},
        **handed,
    }
    process = subprocess.Popen(
        [sys.executable, "-P", contained.__file__, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "OF_IMAGE": "1", "PYTHONPATH": "/image"},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(said).encode() + b"\n")
    process.stdin.flush()
    return process


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start(tmp_path, ["sleep", "600"])
    until(lambda: (tmp_path / "begun").exists())
    yield process
    process.kill()
    process.wait()


def until(true: Any) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_values_arrive_as_they_are_over_the_images(tmp_path: Path):
    tell = "import os, json; print(json.dumps([dict(os.environ), os.getppid(), os.getcwd()]))"
    process = start(tmp_path, [sys.executable, "-c", tell], environment=ODD, python_path=["/code a", "/code b"])
    output = process.stdout.read() if process.stdout is not None else b""
    assert process.wait(TIMEOUT_S) == 0
    environment, parent, folder = json.loads(output)
    assert ODD.items() <= environment.items()
    assert environment["OF_IMAGE"] == "1"
    assert environment["PYTHONPATH"] == "/code a:/code b:/image"
    assert os.access(environment["HOME"], os.W_OK)
    assert environment["PRIMUS_PARENT_PID"] == str(parent) == str(process.pid)
    assert folder == str(tmp_path)
    assert (tmp_path / "begun").exists()


@pytest.mark.parametrize(("does", "code"), [("exit 7", 7), ("kill -9 $$", 128 + 9), ("exit 0", 0)])
def test_its_exit_code_is_that_of_what_it_runs(tmp_path: Path, does: str, code: int):
    assert start(tmp_path, ["sh", "-c", does]).wait(TIMEOUT_S) == code


def test_what_cannot_be_started_leaves_no_mark_of_a_beginning(tmp_path: Path):
    assert start(tmp_path, ["/no/such/program"]).wait(TIMEOUT_S) == contained.NOT_FOUND
    assert not (tmp_path / "begun").exists()


def test_it_ends_with_its_launcher(waiting: subprocess.Popen[bytes]):
    children = psutil.Process(waiting.pid).children()
    assert len(children) == 1
    assert waiting.stdin is not None
    waiting.stdin.close()
    assert waiting.wait(TIMEOUT_S) == contained.KILLED
    until(lambda: not children[0].is_running() or children[0].status() == psutil.STATUS_ZOMBIE)


def test_a_stop_goes_to_what_runs_where_the_launcher_cannot_be_seen(waiting: subprocess.Popen[bytes]):
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(TIMEOUT_S) == 128 + signal.SIGTERM


def test_a_stop_of_the_container_is_told_to_the_launcher_alone(tmp_path: Path):
    launcher = subprocess.Popen(["sleep", "600"])
    process = start(tmp_path, ["sleep", "600"], launcher={"pid": launcher.pid, "mark": start_mark(launcher.pid)})
    try:
        until(lambda: (tmp_path / "begun").exists())
        process.send_signal(signal.SIGINT)
        assert launcher.wait(TIMEOUT_S) == -signal.SIGTERM
        assert process.poll() is None
    finally:
        launcher.kill()
        process.kill()
        process.wait()


def test_only_named_variables_of_the_caller_reach_the_ranks():
    environment = {"HF_TOKEN": "t", "NCCL_DEBUG": "INFO", "LD_LIBRARY_PATH": "/host", "https_proxy": "p"}
    assert chosen(environment, ["HF_TOKEN", "NCCL_*", "*_proxy"]).keys() == {"HF_TOKEN", "NCCL_DEBUG", "https_proxy"}


@pytest.mark.parametrize(("code", "meant"), [(0, 0), (7, 7), (137, -9), (255, 255), (128, 128)])
def test_a_shells_code_of_a_signal_is_a_signal(code: int, meant: int):
    assert as_process_code(code) == meant
