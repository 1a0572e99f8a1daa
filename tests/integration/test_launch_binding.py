"""Ranks are where the plan puts them, however they start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus_hydra.host.cpu_list import format_cpu_list
from tests.integration.launching import toy_launch
from tests.unit.host.machines import write

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize("start", ["fork_server", "subprocess"])
def test_every_thread_of_a_rank_runs_on_the_ranks_own_cpus(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    shares = [set(cpus[: len(cpus) // 2]), set(cpus[len(cpus) // 2 :])]
    machine = {f"sys/devices/system/node/node{n}/cpulist": format_cpu_list(share) for n, share in enumerate(shares)}
    monkeypatch.setenv("TOY_MACHINE", str(write(tmp_path / "machine", machine)))
    job = {"training.steps": 10_000, "backend.config": {"step_s": 0.02}}

    with toy_launch(tmp_path, {"parallel.dp_shard": 2, "launch.start": start, **job}) as launch:
        for rank, share in enumerate(shares):
            launch.wait_for_step(1, rank)
            threads = Path(f"/proc/{launch.rank_pid(rank)}/task").iterdir()
            assert {frozenset(os.sched_getaffinity(int(thread.name))) for thread in threads} == {frozenset(share)}
            assert f"bound to CPUs {format_cpu_list(share)}" in launch.logs()
