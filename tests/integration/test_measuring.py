"""Preflight and benchmarks on this machine, with real processes on its processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.app import run_command
from tests.integration.command import Command

pytestmark = pytest.mark.ranks


def result(folder: Path, pattern: str) -> dict[str, Any]:
    (file,) = folder.glob(pattern)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_full_preflight_of_one_node_tests_its_devices_together(tmp_path: Path) -> None:
    ended = Command(tmp_path).run(
        "task=preflight", "task.suite=full", "task.skip=[kernel_log]", "task.sizes_mib=[0.25]"
    )
    found = result(tmp_path, "preflight/full-*/report.json")
    words = {one["test"]: one["word"] for one in found["nodes"][0]["findings"]}

    assert ended.code == 0, ended.output
    assert {test for test, word in words.items() if word == "pass"} >= {
        "shm",
        "disk",
        "allocate",
        "gemm",
        "copy",
        "local_all_reduce",
        "local_all_to_all",
    }
    assert words["all_reduce"] == words["p2p"] == words["gpus"] == "skip"
    assert found["nodes"][0]["facts"]["devices"]["collectives"] == "gloo"


def test_a_limit_that_a_node_does_not_reach_fails_it_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run_command(["platform=cpu", "task=preflight", "task.tests=[shm]", "platform.limits.shm_gib=1000000"])
    found = result(tmp_path, "preflight/*/report.json")

    assert code == 3
    assert "below 1e+06" in found["nodes"][0]["reasons"][0]
    assert found["failing"] == [found["nodes"][0]["host"]]


def test_a_wrong_test_or_several_nodes_without_slurm_start_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run_command(["platform=cpu", "task=preflight", "task.tests=[gem]", "launch.nodes=2"])
    output = capsys.readouterr().err

    assert code == 2
    assert "did you mean gemm?" in output
    assert "launch.nodes" in output
    assert not (tmp_path / "preflight").exists()


def test_the_points_of_a_sweep_over_the_tasks_own_options_come_into_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = ["platform=cpu", "task=benchmark", "task.suite=dataloader", "data=mock"]
    code = run_command([*job, "-m", "task.seconds=0.02,0.03", "training.seq_length=64"])
    (folder,) = (tmp_path / "benchmark").iterdir()
    found = json.loads((folder / "result.json").read_text())

    assert code == 0
    assert [point["swept"] for point in found["points"]] == [["task.seconds=0.02"], ["task.seconds=0.03"]]
    assert all(row["value"] > 0 for point in found["points"] for row in point["rows"])
    assert (folder / "plot.png").exists()


def test_a_wrong_point_of_a_sweep_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_command(["platform=cpu", "task=benchmark", "-m", "task.dtypes=[float32],[float9]"]) == 2
    assert not (tmp_path / "benchmark").exists()


def test_products_of_the_model_are_measured_and_checked_in_each_format(tmp_path: Path) -> None:
    ended = Command(tmp_path).run(
        "task=benchmark", "task.tokens=16", "task.seconds=0.01", "task.dtypes=[float32,bfloat16]"
    )
    found = result(tmp_path, "benchmark/*/result.json")
    rows = found["points"][0]["rows"]

    assert ended.code == 0, ended.output
    assert {row["dtype"] for row in rows} == {"float32", "bfloat16"}
    assert {row["shape"] for row in rows if row["name"] == "attention.out"} == {"16x64x64"}
    assert all(row["value"] > 0 and row["error"] < 2e-2 for row in rows)
    assert [row["error"] > 1e-4 for row in rows] == [row["dtype"] == "bfloat16" for row in rows]
