"""The fork server is clean: a rank that it forks begins as one that is a process of its own, with both backends."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.launching import toy_launch

pytestmark = pytest.mark.ranks

RANKS = 2
# What differs by nature: who the parent is, where ranks meet, and the agent's own words with its ranks.
OF_THE_WAY = {"PRIMUS_PARENT_PID", "PRIMUS_PRELOAD_SPEC", "JE_ARROW_MALLOC_CONF", "MASTER_PORT"}
# A GPU that this machine lacks: what imports ask of it is answered from here.
GPU = {
    "platform": {"name": "h100", "vendor": "nvidia", "arch": "sm_90", "gpus_per_node": RANKS, "memory_gib": 80},
}
BACKENDS: dict[str, dict[str, Any]] = {
    "torchtitan": {"backend._target_": "primus_probe.ProbedTitan", "backend.name": "torchtitan", **GPU},
    "megatron": {"backend._target_": "primus_probe.ProbedMegatron", "backend.name": "megatron"},
}


@dataclass(frozen=True)
class Begun:
    """What the ranks of a launch began with, and what their server said of itself."""

    ranks: list[dict[str, Any]]
    server: dict[str, Any] | None
    logs: str


def begin(folder: Path, backend: str, start: str) -> Begun:
    """Launch two ranks with two threads each, which the caller's environment does not ask for."""
    settings = {**BACKENDS[backend], "parallel.dp_shard": RANKS, "launch.threads_per_rank": 2, "launch.start": start}
    with toy_launch(folder, {**settings, "env": {"OF_THE_JOB": "yes"}}) as launch:
        result = launch.result()
        assert result["code"] == 0, launch.logs()
        report = next(launch.run_dir.glob("attempts/1/**/preload*.json"), None)
        states = [launch.run_dir / f"state-{rank}.json" for rank in range(RANKS)]
        text = [state.read_text().replace(str(folder), "FOLDER") for state in states]
        return Begun(
            ranks=[json.loads(state) for state in text],
            server=json.loads(report.read_text()) if report else None,
            logs=launch.logs(),
        )


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Begun]:
    ways = (("torchtitan", "fork_server"), ("torchtitan", "subprocess"), ("megatron", "fork_server"))
    return {f"{name} {start}": begin(tmp_path_factory.mktemp("begun"), name, start) for name, start in ways}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_prepared_server_has_one_thread_and_ranks_are_its_children(backend: str, begun: dict[str, Begun]) -> None:
    found = begun[f"{backend} fork_server"]
    assert found.server is not None
    assert found.server["unfit"] is None, found.logs
    assert len({rank["parent"] for rank in found.ranks}) == 1
    assert [rank["parent_threads"] for rank in found.ranks] == [1, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_rank_finds_its_devices_spoilt_by_the_server(backend: str, begun: dict[str, Begun]) -> None:
    for rank in begun[f"{backend} fork_server"].ranks:
        assert rank["cuda"] == {"initialized": False, "bad_fork": False}


def test_a_server_that_asked_for_devices_is_found_out() -> None:
    code = "import torch; from primus_hydra.runtime.preload import _device_touched as touched\n"
    code += "print(touched(torch)); torch.cuda.is_available(); print(touched(torch))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert said[0] == "None"
    assert "asked for the devices" in said[1]


def test_generators_are_the_same_in_every_rank_and_however_it_was_started(begun: dict[str, Begun]) -> None:
    states = [rank["random"] for way in begun.values() for rank in way.ranks]
    assert states == [states[0]] * (3 * RANKS)


@pytest.mark.parametrize("way", ["torchtitan fork_server", "torchtitan subprocess", "megatron fork_server"])
def test_the_threads_of_the_plan_reach_a_library_that_the_server_has_loaded(way: str, begun: dict[str, Begun]) -> None:
    for rank in begun[way].ranks:
        assert rank["environment"]["OMP_NUM_THREADS"] == "2"
        assert (rank["threads_asked"], rank["threads_used"]) == (2, 2)


def test_the_environment_is_that_of_a_process_of_its_own(begun: dict[str, Begun]) -> None:
    for forked, plain in zip(begun["torchtitan fork_server"].ranks, begun["torchtitan subprocess"].ranks, strict=True):
        own, other = _comparable(forked), _comparable(plain)
        assert own["OF_THE_JOB"] == "yes"
        assert own.keys() == other.keys()
        assert {name: (own[name], other[name]) for name in own if own[name] != other[name]} == {}


def _comparable(rank: dict[str, Any]) -> dict[str, str]:
    found = rank["environment"].items()
    return {name: text for name, text in found if name not in OF_THE_WAY and not name.startswith("TORCHELASTIC_")}


def test_an_import_that_fails_in_the_server_is_told_by_the_ranks(tmp_path: Path) -> None:
    with toy_launch(tmp_path, {"parallel.dp_shard": 2, "backend.config": {"missing": True}}) as launch:
        result = launch.result()
        logs = {log.name: log.read_text() for log in launch.run_dir.glob("logs/*")}
    words = "No module named 'a_module_that_is_not_there'"
    assert result["code"] == 1, launch.logs()
    assert words in result["message"]
    assert all(words in logs[f"rank-{rank}.log"] for rank in range(2))
    assert f"the fork server is unfit: ModuleNotFoundError: {words}" in logs["agent.log"]
