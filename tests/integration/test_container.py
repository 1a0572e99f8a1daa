"""Ranks in a real container of podman, through the command: values, exit codes, stops, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.integration.command import TIMEOUT_S, Command
from tests.integration.launching import ToyLaunch, toy_launch, toy_path, wait_until
from tests.integration.podman import Podman, podman_with_image

ODD = "a 'quoted\" $HOME `x` \\ é, b;c"
LONG = {"training.steps": 10_000, "backend.config": {"step_s": 0.05}}


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with podman_with_image() as made:
        yield made


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the toy backend is a package of the user's."""
    return {"PYTHONPATH": os.pathsep.join(toy_path(tmp_path_factory.mktemp("site"))), "NCCL_DEBUG": ODD, "SECRET": "s"}


@dataclass(frozen=True)
class Job:
    """Runs of the toy backend in containers."""

    command: Command
    podman: Podman
    environment: dict[str, str]

    def overrides(self, name: str, *more: str) -> list[str]:
        toy = ("backend._target_=primus_toy.ToyAdapter", "backend.name=toy", "data=mock", "+backend.config.step_s=0.1")
        return [f"run.name={name}", *toy, *self.podman.overrides(), f"env.ODD={ODD}", *more]

    def start(self, name: str, *more: str) -> subprocess.Popen[str]:
        """Start in the background and wait until a few steps are done."""
        process = subprocess.Popen(
            self.command.argv(*self.overrides(name, "training.steps=10000", *more)),
            cwd=self.command.folder,
            env=self.command.environment(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        notes, end = self.command.paths(name).root / "notes-0.txt", time.monotonic() + TIMEOUT_S
        while not (notes.exists() and "step 3" in notes.read_text()):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.05)
        return process

    def rank(self, name: str) -> psutil.Process:
        return psutil.Process(int(self.command.paths(name).attempt(1).pid(0).read_text().split()[0]))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, podman: Podman, toy: dict[str, str]) -> Job:
    return Job(Command(tmp_path_factory.mktemp("command")), podman, toy)


def test_a_stopped_run_in_a_container_saves_and_goes_on(job: Job) -> None:
    process = job.start("stopped")
    rank = job.rank("stopped")
    environment, argv = rank.environ(), " ".join(psutil.Process(process.pid).children()[0].cmdline())
    names = job.podman.containers()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 75, output
    assert environment["container"] == "podman"
    assert environment["ODD"] == environment["NCCL_DEBUG"] == ODD
    assert "SECRET" not in environment
    assert ODD not in argv
    assert len(names) == 1
    assert names[0].startswith("primus-stopped-")
    assert job.podman.containers() == []

    paths = job.command.paths("stopped")
    saved = json.loads(paths.attempt(1).outcome(0).read_text())["step"]
    assert paths.checkpoint(saved).joinpath("state.json").stat().st_uid == os.getuid()
    resumed = job.command.run(
        *job.overrides("stopped", f"training.steps={saved + 2}", "resume=must"), env=job.environment
    )
    assert resumed.code == 0, resumed.output
    assert f"going on from the checkpoint at step {saved}" in resumed.output
    assert job.podman.containers() == []


@pytest.fixture
def launched(tmp_path: Path, podman: Podman) -> Iterator[ToyLaunch]:
    """A launch without the command around it, whose rank has done a few steps in its container."""
    with toy_launch(tmp_path, {**LONG, **podman.keys()}) as launch:
        launch.wait_for_step(3)
        yield launch


def test_what_stops_the_container_stops_the_run_with_a_save(launched: ToyLaunch, podman: Podman) -> None:
    podman.run("stop", "--time", "60", *podman.containers())
    said = launched.result()
    assert said["code"] == 75, said
    assert podman.containers() == []


@pytest.mark.parametrize(("whom", "code"), [("rank", 137), ("launcher", -9), ("twice", 130)])
def test_nothing_outlives_a_death_or_a_hurried_stop(launched: ToyLaunch, podman: Podman, whom: str, code: int) -> None:
    rank = psutil.Process(launched.rank_pid(0))
    match whom:
        case "rank":
            rank.kill()
        case "launcher":
            launched.process.kill()
        case "twice":
            rank.suspend()  # so that it cannot save
            launched.signal(signal.SIGINT)
            time.sleep(0.3)
            launched.signal(signal.SIGINT)
    said = launched.result()
    assert said["code"] == code, said
    if whom == "rank":
        assert "was killed by SIGKILL" in said["message"]
    wait_until(lambda: not rank.is_running() and not podman.containers(), "the end of the rank and of its container")


def test_an_image_that_is_not_there_is_what_the_machine_lacks(tmp_path: Path, podman: Podman) -> None:
    with toy_launch(tmp_path, {**LONG, **podman.keys(), "launch.container.image": "/no/such/image"}) as launch:
        said = launch.result()
    assert said["code"] == 3, said
    assert "podman did not start the container" in said["message"]
    assert podman.containers() == []
