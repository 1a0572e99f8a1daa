"""A follower shows each step as it comes, and never outlives the run or its reader."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from primus_hydra.tasks.runs_follow import follow_run
from tests.unit.tasks.made_runs import make_run

LAUNCHER = Path(__file__).with_name("made_launcher.py")
FOLLOW = """
import sys
from pathlib import Path
from primus_hydra.guard import guarded
from primus_hydra.tasks.runs_follow import follow_run
sys.exit(guarded(lambda: follow_run("it", Path(sys.argv[1]), as_json=False)))
"""


@contextmanager
def launched(root: Path, how: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, str(LAUNCHER), str(root), how], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@contextmanager
def following(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Follow in a process of its own; its first line has come."""
    with subprocess.Popen([sys.executable, "-c", FOLLOW, str(root)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("step ")
        try:
            yield process
        finally:
            process.kill()


def test_steps_are_shown_until_the_run_ends_also_past_a_truncation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with launched(tmp_path / "it", "finishes"):
        assert follow_run("it", tmp_path / "it", as_json=False) == 0
    *steps, end = capsys.readouterr().out.splitlines()

    assert [int(line.split()[1].split("/")[0]) for line in steps][-1] == 5
    assert "/20" in steps[0]
    assert end == "it: finished at step 5"


def test_in_json_each_line_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with launched(tmp_path / "it", "finishes"):
        assert follow_run("it", tmp_path / "it", as_json=True) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [row["step"] for row in rows][-2:] == [4, 5]
    assert rows[-1]["loss"] == 0.2


def test_a_run_at_rest_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = make_run(tmp_path, "it")

    assert follow_run("it", paths.root, as_json=False) == 0
    step, end = capsys.readouterr().out.splitlines()
    assert step.startswith("step 20/20  loss 2.0000")
    assert end == "it: finished at step 20"


def test_ctrl_c_ends_the_follower_alone_and_is_no_failure(tmp_path: Path) -> None:
    with launched(tmp_path / "it", "saves"), following(tmp_path / "it") as process:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)

        assert process.returncode == 0
        assert output.splitlines()[-1].endswith("; it goes on without being followed")


def test_a_follower_ends_when_nobody_reads_it_any_more(tmp_path: Path) -> None:
    with launched(tmp_path / "it", "saves"), following(tmp_path / "it") as process:
        assert process.stdout is not None
        process.stdout.close()

        assert process.wait(timeout=60) == 0
