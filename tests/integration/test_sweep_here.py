"""Sweeps on this machine: one bad point among others, a search with optuna, and what is left of them."""

from __future__ import annotations

import csv
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_hydra.run.paths import SweepPaths
from tests.integration.command import TIMEOUT_S, Command

pytestmark = pytest.mark.ranks
SHORT = ("data=mock", "training.steps=3", "checkpoint.enable=false")


def table(command: Command, name: str) -> list[dict[str, str]]:
    with SweepPaths(command.folder / "runs" / name).table.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_bad_point_neither_stops_nor_hides_the_others(tmp_path: Path) -> None:
    command = Command(tmp_path)
    (tmp_path / "good.txt").write_text("some text to learn from\n" * 400)
    ended = command.run("-m", "run.name=s", "data=text", "data.path=nowhere,good.txt", "parallel.tp=3,1", *SHORT[1:])
    rows = {(row["data.path"], row["parallel.tp"]): row for row in table(command, "s")}

    assert ended.code == 2, ended.output
    assert {key: row["state"] for key, row in rows.items()} == {
        ("nowhere", "3"): "skipped",
        ("nowhere", "1"): "failed",
        ("good.txt", "3"): "skipped",
        ("good.txt", "1"): "finished",
    }
    bad, good = rows["nowhere", "1"], rows["good.txt", "1"]
    assert "does not exist" in bad["reason"]
    assert "does not exist" in Path(bad["log"]).read_text()
    assert (good["step"], good["exit_code"]) == ("3", "0")
    assert float(good["loss"]) == command_loss(Path(good["run"]))
    assert all(row["point"] in ended.output for row in rows.values())
    again = command.run("task=runs", "task.run=s", tiny=False)
    assert "4 points, 1 failed, 1 finished, 2 skipped" in again.output, again.output


def command_loss(run: Path) -> float:
    return float(json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["loss"])


def test_a_stop_is_in_the_table_with_the_points_that_were_not_started(tmp_path: Path) -> None:
    command = Command(tmp_path)
    process = command.start("-m", "run.name=s", "training.seed=1,2,3", "data=mock", "training.steps=500")
    end = time.monotonic() + TIMEOUT_S
    while not [file for file in (tmp_path / "runs" / "s").glob("*/metrics.jsonl") if file.stat().st_size]:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 75, output
    assert [row["state"] for row in table(command, "s")] == ["saved", "not started", "not started"]
    assert "2 of 3 points were not started" in output


def test_optuna_searches_for_the_best_learning_rate(tmp_path: Path) -> None:
    command = Command(tmp_path)
    sweeper = (
        "hydra/sweeper=optuna",
        "hydra.sweeper.n_trials=2",
        "hydra.sweeper.n_jobs=1",
        "hydra.sweeper.sampler.seed=1",
    )
    ended = command.run("-m", *sweeper, "optimizer.lr=tag(log,interval(1e-4,1e-1))", "run.name=search", *SHORT)
    losses = {row["optimizer.lr"]: float(row["loss"]) for row in table(command, "search")}
    best = found(tmp_path, "search")

    assert ended.code == 0, ended.output
    assert len(losses) == 2
    assert best["best_value"] == min(losses.values())
    assert str(best["best_params"]["optimizer.lr"]) == min(losses, key=lambda rate: losses[rate])
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_search_goes_on_after_a_bad_point_and_tells_of_it(tmp_path: Path) -> None:
    command = Command(tmp_path)
    # This seed draws a sound point, an illegal layout, the sound point again, and a rate that cannot be.
    sweeper = ("hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=2")
    trials = ("hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2")
    ended = command.run(
        "-m", *sweeper, *trials, "optimizer.lr=choice(1e-3,-1)", "parallel.tp=choice(1,3)", "run.name=s", *SHORT
    )

    assert ended.code == 2, ended.output
    assert sorted(row["state"] for row in table(command, "s")) == ["finished", "skipped"]
    assert "optimizer.lr: must be greater than 0" in ended.output, ended.output
    assert found(tmp_path, "s")["best_params"] == {"optimizer.lr": 0.001, "parallel.tp": 1}


def found(folder: Path, name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((folder / "runs" / name / "optimization_results.yaml").read_text())
    return read
