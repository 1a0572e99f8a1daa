"""A stop reaches the launcher that holds the run and nobody else, and tells what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from primus_hydra.errors import HostError
from primus_hydra.run.condition import condition_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.tasks.runs_stop import stop_run
from tests.unit.tasks.made_runs import hold, make_run

LAUNCHER = Path(__file__).with_name("made_launcher.py")
Launch = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start a launcher of `it`, and return it once it holds the run."""
    with contextlib.ExitStack() as stack:

        def launch(how: str) -> subprocess.Popen[str]:
            argv = [sys.executable, str(LAUNCHER), str(tmp_path / "it"), how]
            process = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "began\n"
            return process

        yield launch


def test_a_stop_waits_until_the_run_has_saved(
    launch: Launch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = launch("saves")

    assert stop_run("it", tmp_path / "it", as_json=False) == 0
    asked, told = capsys.readouterr().out.splitlines()
    assert asked.startswith(f"asked process {process.pid} on ")
    assert "at most 120 s (launch.stop_grace_s)" in asked
    assert told.startswith("it: saved: stopped and saved at step ")
    assert process.wait(timeout=30) == 0


def test_a_run_that_fails_in_its_stop_gives_its_own_code(
    launch: Launch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launch("fails")

    assert stop_run("it", tmp_path / "it", as_json=True) == 9
    said = json.loads(capsys.readouterr().out)
    assert (said["asked"], said["condition"]["word"]) == (True, "failed")
    assert said["condition"]["state"]["message"] == "rank 0 failed"


def test_a_launcher_that_does_not_end_in_its_grace_is_reported(launch: Launch, tmp_path: Path) -> None:
    process = launch("ignores")
    (tmp_path / "it" / "config.yaml").write_text("launch: {stop_grace_s: 0.2}")

    with pytest.raises(HostError, match=r"has not ended within 0\.3 s") as caught:
        stop_run("it", tmp_path / "it", as_json=False, ending_s=0.1)
    assert f"kill -KILL {process.pid}" in str(caught.value)
    assert condition_of(RunPaths(tmp_path / "it")).word == "running"


def test_a_process_that_got_the_launchers_number_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(["sleep", "60"]) as innocent:
        paths = make_run(tmp_path, "it", status="running")
        hold(paths, pid=innocent.pid, mark="boot:1")

        assert stop_run("it", paths.root, as_json=False) == 0
        assert capsys.readouterr().out.startswith("nothing to stop: it: died after step 20/20: process ")
        assert innocent.poll() is None
        innocent.kill()


def test_a_launcher_of_another_machine_is_stopped_there(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="running")
    hold(paths, host="node7", pid=os.getpid())

    with pytest.raises(HostError, match="type the same command on node7"):
        stop_run("it", paths.root, as_json=False)


@pytest.mark.parametrize("status", ["finished", "saved", "failed"])
def test_there_is_nothing_to_stop_in_a_run_at_rest(
    status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = make_run(tmp_path, "it", status=status)

    assert stop_run("it", paths.root, as_json=False) == 0
    assert capsys.readouterr().out.startswith(f"nothing to stop: it: {status}")
