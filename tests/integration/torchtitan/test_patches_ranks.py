"""Two real ranks on a processor: what goes wrong without a patch, and that all layouts agree with them all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FSDP = {"world": 2, "parallel": {"dp_shard": 2}}
EXPERTS = {"world": 2, "parallel": {"dp_shard": 2, "ep": 2}, "latent": True}
STAGES: dict[str, dict[str, Any]] = {
    "without_sum_reduction": {**FSDP, "disabled": ["torchtitan.cpu-sum-reduction"]},
    "without_two": {**FSDP, "disabled": ["torchtitan.cpu-initial-weights", "torchtitan.end-barrier"]},
    "fsdp": {**FSDP, "late_rank": 1},
    "tp": {"world": 2, "parallel": {"tp": 2}},
    "one_rank": {"world": 1},
    "without_expert_exchange": {**EXPERTS, "disabled": ["torchtitan.cpu-expert-exchange"]},
    "ep": EXPERTS,
    "one_rank_with_experts": {"world": 1, "latent": True},
}


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Reports of the ranks, by stage."""
    folder = tmp_path_factory.mktemp("ranks")
    file = folder / "stages.json"
    ports = free_ports(len(STAGES))
    file.write_text(json.dumps([{**stage, "port": port} for stage, port in zip(STAGES.values(), ports, strict=True)]))
    common = os.environ | {"OMP_NUM_THREADS": "1", "DRIVER_FOLDER": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tests.integration.torchtitan.patches_driver", str(file)]
    ranks = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=common | {"DRIVER_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(error[-3000:] for error in errors)
    return {
        name: [json.loads((folder / f"stage-{index}-rank-{rank}.json").read_text()) for rank in range(stage["world"])]
        for index, (name, stage) in enumerate(STAGES.items())
    }


pytestmark = pytest.mark.ranks


def test_gloo_refuses_the_reduction_of_fsdp_without_the_patch(reports: dict[str, list[dict[str, Any]]]) -> None:
    assert all("PREMUL_SUM" in rank["error"] for rank in reports["without_sum_reduction"])


def test_ranks_start_from_repeated_weights_without_the_patch(reports: dict[str, list[dict[str, Any]]]) -> None:
    first, second = (rank["shards"]["layers.0.feed_forward.w1.weight"] for rank in reports["without_two"])
    assert first == second
    assert reports["without_two"][0]["losses"][0] != pytest.approx(reports["one_rank"][0]["losses"][0], abs=1e-4)


def test_rank_zero_sleeps_at_the_end_without_the_patch(reports: dict[str, list[dict[str, Any]]]) -> None:
    first, second = (rank["seconds_at_end"] for rank in reports["without_two"])
    assert first >= 2 > second


def test_ranks_meet_at_the_end_instead_of_sleeping(reports: dict[str, list[dict[str, Any]]]) -> None:
    first, second = (rank["seconds_at_end"] for rank in reports["fsdp"])
    assert 0.8 < first < 2  # the second rank comes a second late
    assert second < 0.8


@pytest.mark.parametrize("layout", ["fsdp", "tp", "ep"])
def test_shards_of_all_ranks_differ(layout: str, reports: dict[str, list[dict[str, Any]]]) -> None:
    first, second = (rank["shards"] for rank in reports[layout])
    equal = {name for name in first if first[name] == second[name]}
    assert all("norm" in name for name in equal)


def test_experts_exchange_uneven_tokens_only_with_the_patch(reports: dict[str, list[dict[str, Any]]]) -> None:
    assert any("alltoall" in (rank["error"] or "") for rank in reports["without_expert_exchange"])
    assert reports["ep"][0]["error"] is None


@pytest.mark.parametrize(
    ("layout", "alone"), [("fsdp", "one_rank"), ("tp", "one_rank"), ("ep", "one_rank_with_experts")]
)
def test_every_layout_trains_like_one_rank(layout: str, alone: str, reports: dict[str, list[dict[str, Any]]]) -> None:
    """The bound is float noise: sums over ranks are taken in another order."""
    expected = reports[alone][0]["losses"]
    assert expected[-1] < expected[0] - 0.1
    for rank in reports[layout]:
        assert rank["losses"] == pytest.approx(expected, abs=2e-5)
