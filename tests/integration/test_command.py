"""The command from end to end: train, finish, stop, go on, refuse."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.integration.command import TIMEOUT_S, Command

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A folder with one finished run, `straight`, of twenty steps."""
    command = Command(tmp_path_factory.mktemp("command"))
    ended = command.run("run.name=straight", "training.steps=20", "checkpoint.every=10")
    assert ended.code == 0, ended.output
    return command


def test_a_run_learns_and_leaves_what_the_contract_says(command: Command) -> None:
    paths, losses = command.paths("straight"), command.losses("straight")

    assert sorted(losses) == list(range(1, 21))
    assert losses[20] < losses[1] - 0.2
    for file in (paths.config, paths.provenance, paths.metrics, paths.state, paths.rank_log(0)):
        assert file.stat().st_size > 0
    assert paths.plots.joinpath("loss.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(paths.attempt(1).outcome(0).read_text())["status"] == "finished"
    assert json.loads(paths.attempt(1).spec.read_text())["data"]["corpus_hash"]


def test_the_same_command_again_says_that_the_run_is_finished(command: Command) -> None:
    ended = command.run("run.name=straight", "training.steps=20", "checkpoint.every=10")

    assert ended.code == 0
    assert "the run is finished" in ended.output
    assert command.paths("straight").attempts.joinpath("2").exists() is False


def test_a_run_that_was_stopped_twice_ends_as_if_never_stopped(command: Command) -> None:
    overrides = ("run.name=stopped", "training.steps=20", "checkpoint.every=10")

    terminated = command.stop_after(command.start(*overrides), "stopped", 3, signal.SIGTERM)
    interrupted = command.stop_after(command.start(*overrides), "stopped", 11, signal.SIGINT)

    assert (terminated.code, interrupted.code) == (75, 130), terminated.output + interrupted.output
    assert "going on from the checkpoint at step" in interrupted.output
    assert max(command.losses("stopped")) < 20
    resumed = command.run(*overrides)
    assert resumed.code == 0, resumed.output
    assert command.losses("stopped") == command.losses("straight")


def test_a_run_resumed_from_a_checkpoint_repeats_its_losses_bit_by_bit(command: Command) -> None:
    before = command.losses("straight")
    paths = command.paths("straight")
    paths.checkpoint(20).rename(paths.checkpoints / "put-away")
    paths.state.unlink()

    ended = command.run("run.name=straight", "training.steps=20", "checkpoint.every=10")

    assert ended.code == 0, ended.output
    rows = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
    again = {row["step"]: row["loss"] for row in rows if row["attempt"] == 2}
    assert again == {step: before[step] for step in range(11, 21)}


def test_a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_is_used(command: Command) -> None:
    paths = command.paths("straight")
    before = command.losses("straight")
    shard = next(paths.checkpoint(20).glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:100])
    paths.state.unlink()

    ended = command.run("run.name=straight", "training.steps=20", "checkpoint.every=10")

    assert ended.code == 0, ended.output
    assert "set aside" in ended.output
    assert "going on from the checkpoint at step 10" in ended.output
    assert list(paths.checkpoints.glob("damaged-20*"))
    assert command.losses("straight") == before


def test_a_run_whose_values_changed_is_refused_with_the_difference(command: Command) -> None:
    ended = command.run("run.name=straight", "training.steps=20", "optimizer.lr=0.5")

    assert ended.code == 2
    assert "optimizer.lr: 0.002 -> 0.5" in ended.output
    assert "run.fresh=true" in ended.output


@pytest.mark.parametrize("place", ["a-file", "/proc/nowhere"])
def test_a_run_directory_that_cannot_be_is_named_without_a_traceback(place: str, command: Command) -> None:
    (command.folder / "a-file").write_text("")

    ended = command.run("data=mock", f"run.dir={place}", "training.steps=2")

    assert ended.code == 3, ended.output
    assert "run.dir" in ended.output
    assert "Traceback" not in ended.output


def test_a_stop_ends_the_sweep(command: Command) -> None:
    argv = ("-m", "run.name=stopped-sweep", "optimizer.lr=1e-3,2e-3", "training.steps=300", "data=mock")
    process = command.start(*argv)
    points = command.folder / "runs" / "stopped-sweep"
    end = time.monotonic() + TIMEOUT_S
    while not [file for file in points.glob("*/metrics.jsonl") if file.stat().st_size]:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 130, output
    assert "1 of 2 points were not started" in output
    assert len([path for path in points.iterdir() if path.is_dir()]) == 1


def test_a_platform_that_this_machine_is_not_is_refused_with_the_ways_out(command: Command) -> None:
    ended = command.run("model=llama3_8b", "platform=mi300x", tiny=False)

    assert ended.code == 3
    for way in ("platform=cpu", "task=plan", "srun or torchrun"):
        assert way in ended.output
    assert not list(command.folder.glob("runs/llama3_8b*"))


def test_a_sweep_runs_each_point_in_a_directory_of_its_own(command: Command) -> None:
    ended = command.run("-m", "run.name=sweep", "optimizer.lr=1e-3,2e-3", "training.steps=2", "data=mock")

    assert ended.code == 0, ended.output
    points = [path for path in (command.folder / "runs" / "sweep").iterdir() if (path / "state.json").exists()]
    assert len(points) == 2
    assert not (command.folder / "multirun").exists()


def test_a_sweep_with_a_wrong_point_starts_nothing(command: Command) -> None:
    ended = command.run("-m", "run.name=wrong", "optimizer.lr=1e-3,fast", "training.steps=2")

    assert ended.code == 2
    assert "optimizer.lr=fast" in ended.output
    assert not (command.folder / "runs" / "wrong").exists()


@pytest.mark.parametrize("argv", [("task=patches",), ("task=deps",), ("--cfg", "job"), ("--help",)])
def test_what_does_not_train_writes_nothing(argv: tuple[str, ...], tmp_path: Path) -> None:
    ended = Command(tmp_path).run(*argv, tiny=False)

    assert ended.code == 0, ended.output
    assert list(tmp_path.iterdir()) == []
