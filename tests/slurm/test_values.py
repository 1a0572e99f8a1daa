"""Text of every kind reaches the ranks as it was written, whatever starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.command import TINY
from tests.integration.launching import toy_path
from tests.integration.podman import Podman, podman_with_image
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import TIMEOUT_S, Login

pytestmark = pytest.mark.ranks

TEXTS = {
    "METACHARACTERS": "a'b\"c $HOME ${HOME} `id` $(id) \\ ; & | < > * ? [x] {y} ! # ~ %j %%",
    "LINES": "one\ntwo\n\nJOB\n\ttabbed\r\nlast",
    "COMMAS": "a,b=c,,d",
    "UNICODE": "日本語 é \U0001f600",
    "EMPTY": "",
    "DASHES": "--export=NONE -x",
    "BLANKS": "  two before, two after  ",
    **{f"LONG_{number}": f"{number}{'x' * 50_000}" for number in range(4)},
}
LAUNCHERS = ("fork_server", "subprocess", "torchrun", "podman", "submitit", "submitit in podman", "submitit in pyxis")


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with podman_with_image() as made:
        yield made


@pytest.fixture
def with_pyxis(tmp_path: Path) -> str:
    """Return a PATH with an srun that, as the plugin would, takes the options of containers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    srun = folder / "srun"
    srun.write_text(
        "#!/bin/bash\nwords=()\nwhile [[ $1 == --* ]]; do\n"
        '  [[ $1 == --container-* || $1 == --no-container-* ]] || words+=("$1")\n  shift\ndone\n'
        'exec /usr/bin/srun "${words[@]}" "$@"\n'
    )
    srun.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def run(login: Login, podman: Podman, with_pyxis: str) -> Callable[[str], list[dict[str, object]]]:
    """Run two ranks with a launcher; return what each was told."""
    experiment = login.folder / "mine.yaml"
    tell = {str(rank): {"how": "tell", "step": 0} for rank in range(2)}
    texts = {name: text.replace("${", "\\${") for name, text in TEXTS.items()}  # no interpolation
    toy = {"_target_": "primus_toy.ToyAdapter", "name": "toy", "config": {"texts": [*texts.values()], "do": tell}}
    experiment.write_text(yaml.safe_dump({"env": texts, "backend": toy}, allow_unicode=True))
    job = [*TINY, f"experiment={experiment}", "data=mock", "run.name=mine", "training.steps=1", "parallel.dp_shard=2"]
    environment = login.environment() | {f"SHELL_{name}": text for name, text in TEXTS.items() if "LONG" not in name}
    environment["PYTHONPATH"] = os.pathsep.join(toy_path(login.folder / "site"))

    def start(launcher: str) -> list[dict[str, object]]:
        command = [sys.executable, "-m", "primus_hydra", *job, *_keys(launcher, podman, login.cluster)]
        if launcher == "torchrun":
            command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        path = {"PATH": with_pyxis} if "pyxis" in launcher else {}
        ended = subprocess.run(
            _where(launcher, command, login.cluster),
            cwd=login.folder,
            env=environment | path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        logs = "".join(file.read_text() for file in login.paths.root.rglob("*.log"))
        assert ended.returncode == 0, ended.stdout + ended.stderr + logs
        return [json.loads((login.paths.root / f"told-{rank}.json").read_text()) for rank in range(2)]

    return start


def _where(launcher: str, command: list[str], cluster: Cluster) -> list[str]:
    return cluster.argv(command) if "submitit" in launcher else command


def _keys(launcher: str, podman: Podman, cluster: Cluster) -> list[str]:
    keys = [f"launch.start={launcher}"] if launcher in ("fork_server", "subprocess") else []
    if "submitit" in launcher:
        keys += ["hydra/launcher=submitit", "launch.nodes=2", "launch.ranks_per_node=1"]
    if "podman" in launcher:
        keys += podman.overrides()
    if launcher == "submitit in podman":
        # A node of the cluster has no cgroups: podman is called where there are some, and told the nodes' names.
        here = ["nsenter", "--target", str(os.getpid()), "--mount", *podman.command]
        mounts = [*podman.mounts, f"{cluster.folder}/etc/hosts:/etc/hosts:ro"]
        keys += [f"launch.container.{name}=[{','.join(it)}]" for name, it in (("command", here), ("mounts", mounts))]
    if "pyxis" in launcher:
        keys += [
            "launch.container.kind=pyxis",
            "launch.container.image=any",
            f"launch.container.python={sys.executable}",
        ]
    return keys


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_texts_and_lists_arrive_as_they_were_written(
    launcher: str, run: Callable[[str], list[dict[str, object]]], login: Login
) -> None:
    assert sum(len(text) for text in TEXTS.values()) > 128 * 1024
    for told in run(launcher):
        environment, config = told["environment"], told["config"]
        assert isinstance(environment, dict)
        assert isinstance(config, dict)
        assert {name: environment.get(name) for name in TEXTS} == TEXTS
        assert config["texts"] == [*TEXTS.values()]
        assert ("container" in environment) == ("podman" in launcher)
        if "podman" not in launcher:  # a container has only what it was told
            assert environment["SHELL_LINES"] == TEXTS["LINES"]
    if "submitit" in launcher:
        script = login.paths.submission(1).script.read_text().partition("<<'JOB'")[0]
        assert "METACHARACTERS" not in script
        assert not any(text in script for text in TEXTS.values() if text)
