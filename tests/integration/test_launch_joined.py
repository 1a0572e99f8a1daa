"""Ranks that an outer launcher started: rank 0 speaks for all, and all end together."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.integration.launching import toy_launch, wait_until

pytestmark = pytest.mark.ranks


def test_under_torchrun_a_signal_to_one_rank_stops_all_and_each_ends_with_75(tmp_path: Path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    overrides = {"parallel.dp_shard": 2, "training.steps": 10_000, "backend.config": {"meet": True, "step_s": 0.02}}
    with toy_launch(tmp_path, overrides, command=torchrun) as launch:
        launch.wait_for_step(2, rank=1)
        os.kill(launch.rank_pid(1), signal.SIGTERM)
        result = launch.result()
        assert launch.living() == []
    assert result["exit_code"] == 75, launch.logs()
    steps = [launch.notes(rank).splitlines()[-2] for rank in (0, 1)]
    assert steps[0] == steps[1]
    # torchrun itself ends with 1 and lists the codes of its processes.
    assert result["stderr"].count("exitcode  : 75") == 2, result["stderr"]


def test_another_number_of_ranks_than_the_layout_ends_every_rank_with_the_same_code(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(_free_port()))
    monkeypatch.setenv("RANK", "1")
    with toy_launch(tmp_path / "one", {}) as follower:
        monkeypatch.setenv("RANK", "0")
        with toy_launch(tmp_path / "zero", {}) as leader:
            assert leader.result()["code"] == 2
            result = leader.process
            assert result.returncode == follower.result()["code"] == 2


def test_ranks_die_with_a_torchrun_that_is_killed(tmp_path: Path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    do = {"0": {"how": "hang"}, "1": {"how": "hang"}}
    with toy_launch(tmp_path, {"parallel.dp_shard": 2, "backend.config": {"do": do}}, command=torchrun) as launch:
        wait_until(lambda: "hanging" in launch.notes(0) and "hanging" in launch.notes(1), "both ranks")
        os.kill(launch.process.pid, signal.SIGKILL)
        wait_until(lambda: launch.living() == [], "their end", 5)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
