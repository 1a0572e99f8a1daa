"""The command line of a container, for each engine: what is run around the process that starts the ranks.

Pure: nothing is looked up and nothing is started. A command line holds no value of the environment, because every user
of a machine can read it: the values travel through the process's standard input (`launch.containment`). Process ids and
/dev/shm are the machine's own, so that the launcher sees and reaches the ranks as it does without a container.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from primus_hydra.config.schema import ContainerConfig
from primus_hydra.config.schema.platform import PlatformConfig
from primus_hydra.launch.container_mounts import Mount

ENGINES = ("docker", "podman")
"""Kinds that keep containers, under names and ids."""
AMD_DEVICES = ("/dev/kfd", "/dev/dri")
INFINIBAND = "/dev/infiniband"
RUN_LABEL = "primus-hydra.run"
_LONGEST_NAME = 40


@dataclass(frozen=True, kw_only=True)
class ContainerHost:
    """What the command line has to know of the node: who calls, the groups of its device files, what else it has."""

    uid: int
    gid: int
    device_groups: tuple[int, ...] = ()
    infiniband: bool = False


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What one container is for: its name, the run, what it sees, where it works and what it runs.

    `id_file` is where docker and podman leave the container's id.
    """

    name: str
    run_dir: str
    id_file: str
    mounts: tuple[Mount, ...]
    workdir: str
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Containment:
    """The container around the process of one launch plan.

    `argv` is the engine's command with the process's at its end; `passed` are patterns for names of the caller's
    variables; `id_file` is where docker and podman note the container's id, and `begun` appears when it runs.
    """

    config: ContainerConfig
    name: str
    argv: tuple[str, ...]
    mounts: tuple[Mount, ...]
    workdir: str
    python_path: tuple[str, ...]
    passed: tuple[str, ...]
    id_file: Path
    begun: Path


def container_name(run_dir: Path, attempt: int, node: int) -> str:
    """Return a name that no other run, attempt or node has."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", run_dir.name)[:_LONGEST_NAME]
    place = blake2b(str(run_dir).encode(), digest_size=4).hexdigest()
    return f"primus-{plain}-{place}-attempt-{attempt}-node-{node}"


def engine_command(config: ContainerConfig) -> tuple[str, ...]:
    """Return how the engine is called, before its own words."""
    return tuple(config.command) or (config.kind,)


def container_argv(
    config: ContainerConfig, platform: PlatformConfig, host: ContainerHost, contents: Contents
) -> tuple[str, ...]:
    """Return the whole command; raises ValueError for `none` and `pyxis`, which start nothing."""
    if config.kind in ENGINES:
        words = _engine(config, platform, host, contents)
    elif config.kind == "apptainer":
        words = _apptainer(config, platform, contents)
    elif config.kind == "enroot":
        words = _enroot(config, platform, contents)
    else:
        raise ValueError(f"launch.container.kind={config.kind} starts no process of its own")
    return (*engine_command(config), *words)


def removal_argv(config: ContainerConfig, container_id: str) -> tuple[str, ...]:
    """Return the command that removes one container of docker or podman, whatever it does."""
    return (*engine_command(config), "rm", "--force", container_id)


def _engine(
    config: ContainerConfig, platform: PlatformConfig, host: ContainerHost, contents: Contents
) -> Iterator[str]:
    yield from ("run", "--rm", "--interactive", "--name", contents.name)
    yield from ("--label", f"{RUN_LABEL}={contents.run_dir}", "--cidfile", contents.id_file)
    yield from ("--pid=host", f"--network={config.network}")
    yield from ("--ipc=host",) if config.shm_size is None else ("--shm-size", config.shm_size)
    yield from _user(config, host)
    yield from _engine_devices(config, platform, host)
    for mount in contents.mounts:
        yield from ("--mount", _mount(mount, "readonly"))
    yield from ("--workdir", contents.workdir)
    yield from config.extra_args
    python, *rest = contents.argv
    yield from ("--entrypoint", python, str(config.image), *rest)


def _user(config: ContainerConfig, host: ContainerHost) -> tuple[str, ...]:
    """Let the files of the ranks belong to the caller, and the caller's signals reach them."""
    if config.user is not None:
        return ("--user", config.user)
    # Podman without root maps ids: there the caller is himself only if told so.
    return ("--userns=keep-id",) if _is_rootless(config, host) else ("--user", f"{host.uid}:{host.gid}")


def _is_rootless(config: ContainerConfig, host: ContainerHost) -> bool:
    return config.kind == "podman" and host.uid != 0 and engine_command(config)[0] != "sudo"


def _engine_devices(config: ContainerConfig, platform: PlatformConfig, host: ContainerHost) -> Iterator[str]:
    if config.devices == "auto" and platform.vendor == "nvidia":
        yield from ("--gpus", "all") if config.kind == "docker" else ("--device", "nvidia.com/gpu=all")
    devices = device_files(config, platform, host)
    for device in devices:
        yield from ("--device", device)
    if devices and _is_rootless(config, host):
        yield from ("--group-add", "keep-groups")
    else:
        for group in host.device_groups:
            yield from ("--group-add", str(group))
    if INFINIBAND in devices and not _is_rootless(config, host):
        yield from ("--ulimit", "memlock=-1:-1")  # a NIC reads and writes memory that may not be swapped out


def device_files(config: ContainerConfig, platform: PlatformConfig, host: ContainerHost) -> tuple[str, ...]:
    """Return the devices that are named one by one, files and others."""
    if isinstance(config.devices, list):
        return tuple(config.devices)
    if config.devices == "none" or platform.is_cpu:
        return ()
    return (*(AMD_DEVICES if platform.vendor == "amd" else ()), *((INFINIBAND,) if host.infiniband else ()))


def _apptainer(config: ContainerConfig, platform: PlatformConfig, contents: Contents) -> Iterator[str]:
    # Its /dev, process ids and network are the machine's own unless it is told otherwise.
    yield from ("exec", "--cleanenv", "--no-home", "--pwd", contents.workdir)
    yield from ("--nv",) if config.devices == "auto" and platform.vendor == "nvidia" else ()
    for mount in (*contents.mounts, *_devices_as_mounts(config)):
        yield from ("--mount", _mount(mount, "ro"))
    yield from (*config.extra_args, str(config.image), *contents.argv)


def _enroot(config: ContainerConfig, platform: PlatformConfig, contents: Contents) -> Iterator[str]:
    # It shares /dev, process ids and network too; its hook for NVIDIA asks for this variable.
    yield "start"
    if config.devices == "auto" and platform.vendor == "nvidia":
        yield from ("--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    for mount in (*contents.mounts, *_devices_as_mounts(config)):
        fields = (_escaped(mount.source), _escaped(mount.target), "none", f"x-create=auto,rbind{_ro(mount)}")
        yield from ("--mount", ":".join(fields))
    yield from (*config.extra_args, "--", str(config.image), *contents.argv)


def _devices_as_mounts(config: ContainerConfig) -> list[Mount]:
    named = config.devices if isinstance(config.devices, list) else []
    return [Mount.same(device, read_only=False) for device in named if device.startswith("/")]


def _mount(mount: Mount, read_only: Literal["ro", "readonly"]) -> str:
    """Spell a mount as a line of CSV, as the engines read it."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([*fields, *([read_only] if mount.read_only else [])])
    return text.getvalue()


def _ro(mount: Mount) -> str:
    return ",ro" if mount.read_only else ""


def _escaped(path: str) -> str:
    """Spell a path as fstab does."""
    return re.sub(r"[\s\\]", lambda found: f"\\{ord(found[0]):03o}", path)
