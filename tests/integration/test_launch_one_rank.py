"""One rank: signals, exit codes and messages, with real processes."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.launching import toy_launch, wait_until

SLOW = {"training.steps": 10_000, "backend.config": {"step_s": 0.02}}


def do(how: str, code: int = 0, **more: object) -> dict[str, object]:
    return {"backend.config": {"do": {"0": {"how": how, "code": code}}}, **more}


def test_a_rank_that_finishes_ends_with_zero_and_leaves_its_record(tmp_path: Path):
    with toy_launch(tmp_path, {"env": {"TOY_OWN": "yes"}}) as launch:
        result = launch.result()
    assert result["code"] == 0, launch.logs()
    assert result["status"] == {"0": "finished"}
    assert result["steps"] == {"0": 4}
    assert launch.notes().splitlines()[-1] == "cleanup on_error=False"
    losses = [json.loads(line)["step"] for line in (launch.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert losses == [1, 2, 3, 4]
    assert "patches" in json.loads((launch.run_dir / "attempts/1/patches.json").read_text())
    assert json.loads((launch.run_dir / "attempts/1/spec.json").read_text())["environment"]["TOY_OWN"] == "yes"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_scheduler_or_a_lost_terminal_has_the_step_finished_saved_and_requeued(number: int, tmp_path: Path):
    with toy_launch(tmp_path, SLOW) as launch:
        launch.wait_for_step(2)
        launch.signal(number)
        result = launch.result()
    assert result["code"] == 75, launch.logs()
    assert result["status"] == {"0": "stopped"}
    assert (launch.run_dir / f"checkpoints/step-{result['steps']['0']}/primus_checkpoint.json").exists()


def test_the_first_ctrl_c_saves_and_ends_with_130(tmp_path: Path):
    with toy_launch(tmp_path, SLOW) as launch:
        launch.wait_for_step(2)
        launch.signal(signal.SIGINT)
        result = launch.result()
    assert result["code"] == 130, launch.logs()
    assert result["status"] == {"0": "stopped"}


def test_a_stop_asked_for_before_the_rank_is_ready_reaches_it(tmp_path: Path):
    with toy_launch(tmp_path, SLOW) as launch:
        wait_until(lambda: (launch.run_dir / "attempts/1/spec.json").exists(), "the spec")
        time.sleep(0.05)
        launch.signal(signal.SIGTERM)
        result = launch.result()
    assert result["code"] == 75, launch.logs()


def test_the_second_ctrl_c_stops_at_once(tmp_path: Path):
    with toy_launch(tmp_path, do("hang")) as launch:
        wait_until(lambda: "hanging" in launch.notes(), "the hang")
        launch.signal(signal.SIGINT)
        time.sleep(0.3)
        assert launch.process.poll() is None
        launch.signal(signal.SIGINT)
        began = time.monotonic()
        result = launch.result()
        assert time.monotonic() - began < 2
        assert launch.living() == []
    assert result["code"] == 130


def test_a_rank_that_does_not_stop_within_the_grace_is_killed(tmp_path: Path):
    with toy_launch(tmp_path, do("hang", **{"launch.stop_grace_s": 0.5})) as launch:
        wait_until(lambda: "hanging" in launch.notes(), "the hang")
        launch.signal(signal.SIGTERM)
        result = launch.result()
    assert result["code"] == 128 + signal.SIGTERM
    assert "0.5 s after SIGTERM" in result["message"]


@pytest.mark.parametrize(
    ("how", "given", "code", "words"),
    [
        ("raise", 0, 1, "rank 0 failed: RuntimeError: the toy broke"),
        ("user", 0, 2, "training.steps: the toy dislikes it"),
        ("host", 0, 3, "the toy needs a bigger machine"),
        ("sysexit", 9, 9, "SystemExit"),
        ("exit", 7, 7, "rank 0 ended with exit code 7 without a word"),
        ("exit", 0, 1, "rank 0 ended with exit code 0 without a word"),
        ("kill", 0, 137, "SIGKILL"),
    ],
)
def test_a_failed_rank_is_named_and_its_code_passes_through(
    tmp_path: Path, how: str, given: int, code: int, words: str
):
    with toy_launch(tmp_path, do(how, given)) as launch:
        result = launch.result()
    assert result["code"] == code, launch.logs()
    assert words in result["message"]
    assert result["failed_rank"] == 0
    assert Path(result["log"]).name == "rank-0.log"
    cleanups = launch.notes().count("cleanup on_error=True")
    assert cleanups == (0 if how in ("exit", "kill") else 1)


def test_only_an_error_that_nobody_outside_can_mend_shows_a_traceback(tmp_path: Path):
    logs = {}
    for how in ("raise", "user"):
        with toy_launch(tmp_path / how, do(how)) as launch:
            launch.result()
            logs[how] = launch.logs()
    assert "Traceback" in logs["raise"]
    assert "Traceback" not in logs["user"]


def test_what_a_rank_started_does_not_outlive_the_launch(tmp_path: Path):
    with toy_launch(tmp_path, do("helper")) as launch:
        result = launch.result()
        assert result["code"] == 0
        assert launch.living() == []


def test_the_rank_dies_with_its_launcher(tmp_path: Path):
    with toy_launch(tmp_path, do("hang")) as launch:
        wait_until(lambda: "hanging" in launch.notes(), "the hang")
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.process.communicate()
        wait_until(lambda: launch.living() == [], "the rank's end", 5)
