"""A real podman with a store of its own, whose image borrows its programs from this machine."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CANNOT_BE_HAD
from tests.integration.command import TIMEOUT_S

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


@contextlib.contextmanager
def podman_with_image() -> Iterator[Podman]:
    """Make a podman with the image; skips the test where none can run a container."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    # podman takes no longer path than 50 characters, and a worker's own folder has one.
    with tempfile.TemporaryDirectory(prefix="phpod-", ignore_cleanup_errors=True) as name:
        made, root = Podman(Path(name)), Path(name, "image")
        for folder in _ROOT_FOLDERS:
            (root / folder).mkdir(parents=True)
        try:
            subprocess.run(["tar", "-C", str(root), "-cf", str(root.with_suffix(".tar")), "."], check=True)
            made.run("import", "--quiet", str(root.with_suffix(".tar")), IMAGE)
            tried = [word for mount in made.mounts for word in ("--volume", mount)]
            made.run("run", "--rm", "--pid=host", "--network=host", "--ipc=host", *made.extra, *tried, IMAGE, "true")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"{CANNOT_BE_HAD}podman cannot run a container: {error.stderr}")
        yield made
