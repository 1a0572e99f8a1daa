"""Sweeps on a real Slurm, with nodes that do nothing but end as they are told."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import yaml

from primus_hydra.run.paths import RunPaths, SweepPaths
from primus_hydra.run.submission import newest_submission
from tests.slurm.conftest import Login


def sweep_of(login: Login) -> SweepPaths:
    return SweepPaths(login.folder / "runs" / "mine")


def states(login: Login) -> dict[str, str]:
    points = json.loads(sweep_of(login).record.read_text())["points"]
    return {next(iter(point["overrides"].values())): point["state"] for point in points}


def test_twenty_points_are_submitted_at_once_and_nobody_waits_for_them(login: Login) -> None:
    seeds = ",".join(map(str, range(20)))
    left = login.submit("-m", f"training.seed={seeds}", "launch.wait=false", "env.STAND_IN=300:0")
    queued = login.cluster.run("squeue", "--noheader", "--format=%A").split()
    shown = login.run("task=runs", "task.run=mine", "task.format=json")

    assert left.code == 0, left.output
    assert len(queued) == 20
    assert set(states(login).values()) == {"submitted"}
    assert [row["job"] for row in json.loads(shown.output)["rows"]] == sorted(queued, key=int)
    assert {row["state"] for row in json.loads(shown.output)["rows"]} <= {"queued", "starting", "running"}


def test_one_copy_of_the_code_serves_all_points(login: Login) -> None:
    login.submit("-m", "training.seed=1,2,3", "launch.wait=false", "launch.slurm.sbatch_args.begin=now+1hour")
    runs = [RunPaths(path) for path in (login.folder / "runs" / "mine").iterdir() if path.is_dir()]

    assert len({job.code for run in runs if (job := newest_submission(run))}) == 1


def test_a_bad_point_in_the_middle_hides_no_other_and_the_table_tells_all(login: Login) -> None:
    partitions = "main,nope,main"
    heads = ("-m", "parallel.tp=1,3", "env.STAND_IN=0.2:0,0.2:7")
    ended = login.submit(*heads, f"launch.slurm.partition={partitions.rpartition(',')[0]}")
    with sweep_of(login).table.open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert ended.code == 7, ended.output
    told = sorted(
        (row["parallel.tp"], row["env.STAND_IN"], row["launch.slurm.partition"], row["state"]) for row in rows
    )
    assert [row[3] for row in told if row[0] == "3"] == ["skipped"] * 4
    assert [row[2:] for row in told if row[0] == "1"] == [
        ("main", "finished"),
        ("nope", "not submitted"),
        ("main", "failed"),
        ("nope", "not submitted"),
    ]
    refused = next(row for row in rows if row["state"] == "not submitted")
    assert "nope" in refused["reason"]
    assert "sbatch refuses the job" in Path(refused["log"]).read_text()
    failed = next(row for row in rows if row["state"] == "failed")
    assert (failed["exit_code"], failed["reason"]) == ("7", "the stand-in ended with 7")
    assert Path(failed["log"]).read_text()
    for row in rows:
        assert row["point"] in ended.output


def test_a_sweep_that_was_extended_has_the_points_of_both_commands(login: Login) -> None:
    login.submit("-m", "training.seed=1,2", "env.STAND_IN=0.2:0")
    login.submit("-m", "training.seed=2,3", "env.STAND_IN=0.2:0", "launch.wait=false")

    assert states(login) == {"1": "finished", "2": "submitted", "3": "submitted"}


def test_optuna_submits_a_batch_at_once_and_learns_from_all_its_points(login: Login) -> None:
    # This seed draws three different points, the last of them twice.
    sweeper = ("hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=6")
    trials = ("hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=4")
    swept = ("optimizer.lr=choice(3e-3,1e-3)", "env.STAND_IN=choice('0.2:0','0.2:7')")
    ended = login.submit("-m", *sweeper, *trials, *swept)
    best = yaml.safe_load((sweep_of(login).root / "optimization_results.yaml").read_text())

    assert ended.code == 7, ended.output
    told = [ended.output.index("runs on node"), ended.output.rindex("submitted mine/")]
    assert told == sorted(told, reverse=True), ended.output
    assert {key.lstrip("+"): value for key, value in best["best_params"].items()} == {
        "optimizer.lr": 0.001,
        "env.STAND_IN": "0.2:0",
    }
    assert sorted(states(login)) == ["0.001", "0.003"]
