"""Ranks in a real container of podman, through the command: values, exit codes, stops, and nothing left behind."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import CANNOT_BE_HAD
from tests.integration.command import TIMEOUT_S, Command
from tests.integration.launching import ToyLaunch, toy_launch, toy_path, wait_until

ODD = "a 'quoted\" $HOME `x` \\ é, b;c"
LONG = {"training.steps": 10_000, "backend.config": {"step_s": 0.05}}
IMAGE = "localhost/primus-hydra-test"
_ROOT_FOLDERS = ("bin", "dev", "etc", "lib", "lib64", "proc", "sys", "tmp", "usr")


@dataclass(frozen=True)
class Podman:
    """A podman with a store of its own, and an image with nothing in it: its programs are this machine's."""

    store: Path

    @property
    def command(self) -> list[str]:
        here = ["--root", str(self.store / "root"), "--runroot", str(self.store / "run"), "--storage-driver", "vfs"]
        runc = ["--runtime", "runc", "--cgroup-manager", "cgroupfs"] if shutil.which("runc") else []
        return ["podman", *here, *runc]

    @property
    def extra(self) -> list[str]:
        """Limits as they are: where they may not be raised, podman's own would be refused."""
        limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
        soft = {name: min(4096, resource.getrlimit(limit)[0] % 2**31) for name, limit in limits.items()}
        return [word for name, limit in soft.items() for word in ("--ulimit", f"{name}={limit}:{limit}")]

    @property
    def mounts(self) -> list[str]:
        """What this Python needs of the machine."""
        system = [Path("/", name) for name in ("usr", "bin", "lib", "lib64")]
        here = [Path(sys.prefix), Path(sys.base_prefix)]
        apart = [path for path in here if not path.is_relative_to("/usr")]
        return [f"{path}:{path}:ro" for path in dict.fromkeys([*system, *apart]) if path.exists()]

    def containers(self) -> list[str]:
        """Return the names of all containers, also of those that do not run."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def run(self, *words: str) -> str:
        return subprocess.run(
            [*self.command, *words], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        ).stdout

    def keys(self) -> dict[str, Any]:
        """Return the keys of a job that runs in it."""
        values = {
            "kind": "podman",
            "image": IMAGE,
            "python": sys.executable,
            "command": self.command,
            "extra_args": self.extra,
            "mounts": self.mounts,
        }
        return {f"launch.container.{name}": value for name, value in values.items()}

    def overrides(self) -> list[str]:
        """Return the same as words of the command."""
        return [
            f"{name}=[{','.join(value)}]" if isinstance(value, list) else f"{name}={value}"
            for name, value in self.keys().items()
        ]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    # podman takes no longer path than 50 characters, and a worker's own folder has one.
    folder = Path(tempfile.mkdtemp(prefix="phpod-"))
    made = Podman(folder)
    root = tmp_path_factory.mktemp("image")
    for name in _ROOT_FOLDERS:
        (root / name).mkdir()
    try:
        subprocess.run(["tar", "-C", str(root), "-cf", str(root.with_suffix(".tar")), "."], check=True)
        made.run("import", "--quiet", str(root.with_suffix(".tar")), IMAGE)
        tried = [word for mount in made.mounts for word in ("--volume", mount)]
        made.run("run", "--rm", "--pid=host", "--network=host", "--ipc=host", *made.extra, *tried, IMAGE, "true")
    except subprocess.CalledProcessError as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"{CANNOT_BE_HAD}podman cannot run a container: {error.stderr}")
    yield made
    shutil.rmtree(folder, ignore_errors=True)


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
