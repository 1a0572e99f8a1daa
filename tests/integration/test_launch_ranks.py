"""Several ranks under torch's elastic agent: who failed, agreed stops, restarts, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
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


def test_a_hang_is_found_named_and_ended(tmp_path: Path):
    do = {"1": {"how": "hang", "step": 2}}
    overrides = {"parallel.dp_shard": 2, "launch.timeouts.step": 2, "backend.config": {"meet": True, "do": do}}
    with toy_launch(tmp_path, overrides) as launch:
        result = launch.result()
        assert launch.living() == []
    assert result["code"] == 100, launch.logs()
    assert result["failed_rank"] == 1
    assert "in a step after step 2; stuck: rank 1" in result["message"]
    attempt = launch.run_dir / "attempts" / "1"
    assert "all_reduce" in (attempt / "stacks" / "rank-0.txt").read_text()
    assert "_do_as_told" in (attempt / "stacks" / "rank-1.txt").read_text()
    assert json.loads((attempt / "hang.json").read_text())["stuck"] == [1]


def test_a_hang_is_restarted_where_restarts_are_left(tmp_path: Path):
    do = {"1": {"how": "hang", "step": 2, "restart": 0}}
    settings = {"parallel.dp_shard": 2, "launch.timeouts.step": 2, "launch.max_restarts": 1}
    with toy_launch(tmp_path, {**settings, "backend.config": {"meet": True, "do": do}}) as launch:
        result = launch.result()
    assert result["code"] == 0, launch.logs()
    assert result["restarts"] == 1


def test_a_failure_that_comes_back_at_the_same_step_ends_early(tmp_path: Path):
    do = {str(rank): {"how": "raise", "step": 2} for rank in range(2)}
    settings = {"parallel.dp_shard": 2, "launch.max_restarts": 9}
    with toy_launch(tmp_path, {**settings, "backend.config": {"meet": True, "do": do}}) as launch:
        result = launch.result()
    assert result["code"] == 1, launch.logs()
    assert result["restarts"] == 1
    assert "not restarted again: the same failure came back at step 3" in result["message"]


def test_ranks_are_forked_from_one_server_and_a_dead_server_is_a_dead_rank(tmp_path: Path):
    do = {str(rank): {"how": "hang", "restart": 0} for rank in range(2)}
    settings = {"parallel.dp_shard": 2, "launch.max_restarts": 1}
    with toy_launch(tmp_path, {**settings, "backend.config": {"do": do}}) as launch:
        wait_until(lambda: "hanging" in launch.notes(0) and "hanging" in launch.notes(1), "both ranks")
        servers = {psutil.Process(launch.rank_pid(rank)).ppid() for rank in range(2)}
        assert len(servers) == 1
        server = psutil.Process(servers.pop())
        assert server.num_threads() == 1
        server.kill()
        result = launch.result()
        assert launch.living() == []
    assert result["code"] == 0, launch.logs()
    assert result["restarts"] == 1


@pytest.mark.parametrize("settings", [{"launch.start": "subprocess"}, {"backend.config": {"thread": True}}])
def test_ranks_start_as_processes_where_that_is_asked_for_or_the_server_is_unfit(
    tmp_path: Path, settings: dict[str, object]
):
    with toy_launch(tmp_path, {"parallel.dp_shard": 2, **settings}) as launch:
        result = launch.result()
    assert result["code"] == 0, launch.logs()
    report = launch.run_dir / "attempts" / "1" / "preload.json"
    unfit = json.loads(report.read_text())["unfit"] if report.exists() else None
    assert unfit == ("2 threads run in it, and a fork copies only one" if "backend.config" in settings else None)
    assert report.exists() == ("backend.config" in settings)
