"""The same words with another backend: one word on the command line changes, and everything around the steps stays."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.command import TIMEOUT_S, Command

pytestmark = pytest.mark.ranks

STEPS = ("training.steps=20", "checkpoint.every=5", "backend=megatron")
# Two halves of each product are summed in another order; a lost or repeated step shows in the second digit.
NOISE = 5e-6


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A folder with one finished run, `straight`, of twenty steps."""
    command = Command(tmp_path_factory.mktemp("command"))
    ended = command.run("run.name=straight", *STEPS)
    assert ended.code == 0, ended.output
    return command


def test_a_run_learns_and_leaves_what_the_contract_says(command: Command) -> None:
    paths, losses = command.paths("straight"), command.losses("straight")

    assert sorted(losses) == list(range(1, 21))
    assert losses[20] < losses[1] - 0.2
    for file in (paths.config, paths.provenance, paths.metrics, paths.state, paths.rank_log(0), paths.goodput):
        assert file.stat().st_size > 0
    assert paths.plots.joinpath("loss.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(paths.attempt(1).outcome(0).read_text())["status"] == "finished"
    assert "the run is finished" in command.run("run.name=straight", *STEPS).output


def test_a_run_that_was_stopped_ends_as_if_never_stopped(command: Command) -> None:
    stopped = command.stop_after(command.start("run.name=stopped", *STEPS), "stopped", 3, signal.SIGTERM)
    assert stopped.code == 75, stopped.output
    assert max(command.losses("stopped")) < 20

    resumed = command.run("run.name=stopped", *STEPS)
    assert resumed.code == 0, resumed.output
    assert command.losses("stopped") == command.losses("straight")


def test_a_killed_rank_costs_the_steps_since_the_last_save_and_nothing_else(command: Command) -> None:
    overrides = ("run.name=killed", *STEPS, "parallel.tp=2", "launch.max_restarts=1")
    process = command.start(*overrides)
    end = time.monotonic() + TIMEOUT_S
    while max(command.losses("killed"), default=0) < 7:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)
    pid = command.paths("killed").attempt(1).pid(1).read_text().split()[0]
    os.kill(int(pid), signal.SIGKILL)
    output, _ = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 0, output
    rows = [json.loads(line) for line in command.paths("killed").metrics.read_text().splitlines()]
    assert min(row["step"] for row in rows if row["restart"] == 1) > 5
    straight, killed = command.losses("straight"), command.losses("killed")
    assert [killed[step] for step in range(1, 21)] == pytest.approx([straight[s] for s in range(1, 21)], abs=NOISE)


def test_what_no_rank_could_mend_is_refused_before_one_starts(command: Command, tmp_path: Path) -> None:
    checkpoint = command.paths("straight").checkpoint(20)
    mistakes = {
        "another backend's weights": ("backend=torchtitan", f"init_from={checkpoint}"),
        "another model": ("backend=megatron", f"init_from={checkpoint}", "model.num_hidden_layers=3"),
        "no data": ("backend=megatron", "data=megatron", f"data.path={tmp_path / 'nothing'}"),
        "no such native key": ("backend=megatron", "backend.config.transformer.hiden_dropout=0.1"),
        "ranks that do not divide": ("backend=megatron", "parallel.tp=3"),
    }
    for name, overrides in mistakes.items():
        ended = command.run("run.name=refused", *overrides)
        assert ended.code == 2, f"{name}: {ended.output}"
        assert "Traceback" not in ended.output, name
    assert not command.paths("refused").attempts.exists()
