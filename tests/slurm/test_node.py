"""Real ranks on two nodes of a real Slurm: they finish, lose a rank, lose a node, are put back into the queue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from primus_hydra.run.history import read_end
from primus_hydra.run.metrics import last_per_step, number, read_metrics, step_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import newest_submission
from tests.integration.command import TINY
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import Login

pytestmark = pytest.mark.ranks

TIMEOUT_S = 300
STEPS = 60
JOB = (
    *TINY,
    "hydra/launcher=submitit",
    "backend=megatron",
    "data=mock",
    "launch.nodes=2",
    "launch.ranks_per_node=1",
    "parallel.dp_shard=2",
    f"training.steps={STEPS}",
    "checkpoint.every=10",
)


@dataclass
class Typed:
    """A command on the login node, and the run that it leaves."""

    cluster: Cluster
    paths: RunPaths
    process: subprocess.Popen[str]

    def end(self) -> str:
        """Wait for the command and return what it printed."""
        output, _ = self.process.communicate(timeout=TIMEOUT_S)
        return output

    def until_step(self, step: int) -> None:
        """Wait until a step is logged."""
        self._until(lambda: max(self.losses(), default=0) >= step, f"step {step}")

    def losses(self) -> dict[int, float]:
        """Return the loss of each step."""
        return {
            step_of(row) or 0: number(row, "loss") or 0.0 for row in last_per_step(read_metrics(self.paths.metrics))
        }

    @property
    def job(self) -> str:
        """The number of the newest job."""
        self._until(lambda: newest_submission(self.paths) is not None, "a job")
        found = newest_submission(self.paths)
        assert found is not None
        return found.job_id

    def slurm(self, field: str) -> str:
        """Return what Slurm says of the job."""
        said = self.cluster.run("scontrol", "show", "job", "--oneliner", self.job)
        return next(word.partition("=")[2] for word in said.split() if word.startswith(f"{field}="))

    def _until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not true():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < end, f"{what} did not come"
            time.sleep(0.02)


@pytest.fixture
def typed(login: Login) -> Iterator[Callable[..., Typed]]:
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *overrides: str) -> Typed:
        command = [sys.executable, "-m", "primus_hydra", *JOB, f"run.name={name}", *overrides]
        process = subprocess.Popen(
            login.cluster.argv(command),
            cwd=login.folder,
            env=login.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return Typed(login.cluster, RunPaths(login.folder / "runs" / name), process)

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def end_of(paths: RunPaths, attempt: int) -> dict[str, object]:
    end = read_end(paths.attempt(attempt).ended)
    assert end is not None
    return {"status": end.status, "code": end.exit_code, "restarts": end.restarts, "message": end.message}


def test_a_run_that_loses_a_rank_and_then_a_node_ends_as_if_undisturbed(typed: Callable[..., Typed]) -> None:
    straight = typed("straight")
    output = straight.end()
    assert straight.process.returncode == 0, output
    assert sorted(straight.losses()) == list(range(1, STEPS + 1))

    crossed = typed("crossed", "launch.max_restarts=1")
    crossed.until_step(13)
    os.kill(int(crossed.paths.attempt(1).pid(1).read_text().split()[0]), signal.SIGKILL)
    crossed.until_step(26)
    crossed.cluster.crash("node2")
    try:
        output = crossed.end()
    finally:
        crossed.cluster.boot("node2")
        crossed.cluster.wait_idle()

    assert crossed.process.returncode == 0, output
    assert crossed.losses() == straight.losses()
    first = end_of(crossed.paths, 1)
    assert (first["code"], first["restarts"]) == (137, 1)
    assert "node2 (node 1 of the job) was lost" in str(first["message"])
    assert end_of(crossed.paths, 2)["status"] == "finished"
    restarts = [json.loads(line) for line in crossed.paths.metrics.read_text().splitlines()]
    assert {(row["attempt"], row["restart"]) for row in restarts} == {(1, 0), (1, 1), (2, 0)}


def test_before_its_time_is_over_a_job_saves_and_goes_back_into_the_queue(typed: Callable[..., Typed]) -> None:
    run = typed("late")
    run.until_step(13)
    run.cluster.run("scancel", "--signal=USR2", run.job)
    output = run.end()
    assert run.process.returncode == 0, output
    assert end_of(run.paths, 1)["status"] == "saved"
    assert end_of(run.paths, 2)["status"] == "finished"
    assert run.slurm("Restarts") == "1"
    rows = read_metrics(run.paths.metrics)
    assert [step_of(row) for row in rows] == list(range(1, STEPS + 1)), "no step is done twice"


def test_the_cause_is_told_and_is_the_jobs_exit_code(typed: Callable[..., Typed]) -> None:
    run = typed("lost")
    run.until_step(3)
    os.kill(int(run.paths.attempt(1).pid(1).read_text().split()[0]), signal.SIGKILL)
    output = run.end()
    assert run.process.returncode == 137, output
    assert "rank 1 was killed by SIGKILL" in output
    assert "(on node2)" in output
    assert (run.slurm("JobState"), run.slurm("ExitCode")) == ("FAILED", "137:0")
    assert not [log for log in Path(run.paths.root).rglob("ended.json") if "finished" in log.read_text()]
