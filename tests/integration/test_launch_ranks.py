"""Several ranks under torch's elastic agent: who failed, agreed stops, restarts, and nothing left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.launching import toy_launch, wait_until

pytestmark = pytest.mark.ranks


def test_sigterm_stops_all_ranks_after_the_same_step(tmp_path: Path):
    overrides = {"parallel.dp_shard": 2, "training.steps": 10_000, "backend.config": {"meet": True, "step_s": 0.02}}
    with toy_launch(tmp_path, overrides) as launch:
        launch.wait_for_step(2)
        launch.signal(signal.SIGTERM)
        result = launch.result()
        assert launch.living() == []
    assert result["code"] == 75, launch.logs()
    assert result["status"] == {"0": "stopped", "1": "stopped"}
    assert result["steps"]["0"] == result["steps"]["1"] > 0


def test_a_rank_that_leaves_quietly_has_failed(tmp_path: Path):
    do = {"0": {"how": "hang"}, "1": {"how": "exit", "code": 0}}
    with toy_launch(tmp_path, {"parallel.dp_shard": 2, "backend.config": {"do": do}}) as launch:
        result = launch.result()
        assert launch.living() == []
    assert result["code"] == 1, launch.logs()
    assert result["failed_rank"] == 1
    assert "rank 1 ended with exit code 0 without a word" in result["message"]


def test_a_restart_goes_on_although_others_hung(tmp_path: Path):
    do = {"0": {"how": "hang", "restart": 0}, "1": {"how": "raise", "restart": 0}}
    overrides = {"parallel.dp_shard": 2, "launch.max_restarts": 1, "backend.config": {"do": do}}
    with toy_launch(tmp_path, overrides) as launch:
        result = launch.result()
    assert result["code"] == 0, launch.logs()
    assert result["restarts"] == 1
    assert result["status"] == {"0": "finished", "1": "finished"}


def test_agent_and_ranks_die_with_their_launcher(tmp_path: Path):
    do = {"0": {"how": "hang"}, "1": {"how": "hang"}}
    with toy_launch(tmp_path, {"parallel.dp_shard": 2, "backend.config": {"do": do}}) as launch:
        wait_until(lambda: "hanging" in launch.notes(0) and "hanging" in launch.notes(1), "both ranks")
        assert len(launch.living()) >= 4
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.process.communicate()
        wait_until(lambda: launch.living() == [], "their end", 5)
