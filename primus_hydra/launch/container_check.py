"""What stands against a container before anything starts: all of it at once; and what this node has to say for one."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from primus_hydra.config.schema import ContainerConfig, JobConfig
from primus_hydra.errors import Problem
from primus_hydra.launch.container import AMD_DEVICES, ENGINES, INFINIBAND, ContainerHost, engine_command
from primus_hydra.launch.container_mounts import KEY as MOUNTS_KEY
from primus_hydra.launch.container_mounts import parse_mounts

_KEY = "launch.container"
_SOURCES = {
    "docker": "install docker (package docker.io, docker-ce or moby-engine)",
    "podman": "install podman (package podman)",
    "apptainer": "install apptainer (package apptainer), or load it (module load apptainer)",
    "enroot": "install enroot (package enroot of its project's releases)",
}
_GPU_DEVICE = re.compile(r"/dev/(kfd|dri|nvidia).*|.+/gpu=.+")
_SIZE = re.compile(r"\d+[bkmgBKMG]?")


def container_problems(job: JobConfig, *, here: bool = True, submitted: bool = False) -> list[Problem]:
    """Return what the user has to mend; `here`: the container runs on this machine, `submitted`: srun starts it."""
    config = job.launch.container
    if config.kind == "none":
        return []
    _, wrong_mounts = parse_mounts(config.mounts)
    return [
        *_image_problems(config, here=here),
        *wrong_mounts,
        *(_missing_sources(job) if here and job.launch.check_paths else []),
        *_device_problems(job),
        *_option_problems(config),
        *([_pyxis_without_srun()] if config.kind == "pyxis" and not submitted else []),
    ]


def engine_problems(job: JobConfig) -> list[Problem]:
    """Return what this machine lacks to run the job's container."""
    config = job.launch.container
    if config.kind in ("none", "pyxis"):
        return []
    program = engine_command(config)[0]
    lacking = [] if shutil.which(program) else [_no_engine(config, program)]
    return [*lacking, *_missing_devices(config)]


def read_container_host(job: JobConfig) -> ContainerHost:
    """Look at this node: who calls, and the groups that may use the devices which the container gets."""
    named = job.launch.container.devices
    if isinstance(named, list):
        devices = [device for device in named if device.startswith("/")]
    else:
        devices = list(AMD_DEVICES) if named == "auto" and job.platform.vendor == "amd" else []
    infiniband = Path(INFINIBAND).is_dir()
    return ContainerHost(uid=os.getuid(), gid=os.getgid(), device_groups=_groups(devices), infiniband=infiniband)


def _groups(devices: list[str]) -> tuple[int, ...]:
    files = [file for device in devices for file in (Path(device), *_inside(Path(device)))]
    found = {file.stat().st_gid for file in files if file.is_char_device()}
    return tuple(sorted(found - {0, os.getgid()}))


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _image_problems(config: ContainerConfig, *, here: bool) -> list[Problem]:
    if not config.image:
        what = f"{config.kind} needs an image, and none is named"
        return [Problem(key=f"{_KEY}.image", what=what, hint=f"set {_KEY}.image, or {_KEY}.kind=none")]
    if config.kind == "enroot" and "://" in config.image:
        hint = f"enroot import {config.image}, and name the .sqsh file; or kind=pyxis, which fetches it by itself"
        return [
            Problem(key=f"{_KEY}.image", what="enroot starts a file or a container that is made already", hint=hint)
        ]
    is_file = config.kind in ("apptainer", "enroot") and config.image.startswith(("/", "./", "~"))
    if here and is_file and not Path(config.image).expanduser().exists():
        return [Problem(key=f"{_KEY}.image", what=f"there is no {config.image}")]
    return []


def _missing_sources(job: JobConfig) -> list[Problem]:
    mounts, _ = parse_mounts(job.launch.container.mounts)
    hint = "mount what is there; launch.check_paths=false if only the nodes have it"
    return [
        Problem(key=MOUNTS_KEY, what=f"there is no {mount.source} to mount", hint=hint)
        for mount in mounts
        if not Path(mount.source).exists()
    ]


def _device_problems(job: JobConfig) -> list[Problem]:
    devices = job.launch.container.devices
    if isinstance(devices, str):
        if devices in ("auto", "none"):
            return []
        hint = f"write {_KEY}.devices=[{devices}] for a list"
        return [Problem(key=f"{_KEY}.devices", what=f"expects auto, none or a list, not {devices!r}", hint=hint)]
    gpus = [device for device in devices if _GPU_DEVICE.fullmatch(device)]
    if not gpus or not job.platform.is_cpu:
        return []
    what = f"platform {job.platform.name} has no GPU, and {', '.join(gpus)} is one"
    return [Problem(key=f"{_KEY}.devices", what=what, hint="choose the platform of the GPU, or leave the device out")]


def _option_problems(config: ContainerConfig) -> list[Problem]:
    problems = []
    if config.kind not in ENGINES:
        given = {"shm_size": config.shm_size, "user": config.user}
        asked = [name for name, value in given.items() if value is not None]
        asked += ["network"] if config.network != "host" else []
        problems = [
            Problem(key=f"{_KEY}.{name}", what=f"{config.kind} has no such option", hint="for docker and podman only")
            for name in asked
        ]
    if config.shm_size is not None and not _SIZE.fullmatch(config.shm_size):
        what = f"expects a size such as 64g, not {config.shm_size!r}"
        problems.append(Problem(key=f"{_KEY}.shm_size", what=what))
    if config.workdir is not None and not config.workdir.startswith("/"):
        problems.append(Problem(key=f"{_KEY}.workdir", what=f"expects an absolute path, not {config.workdir!r}"))
    return problems


def _pyxis_without_srun() -> Problem:
    what = "pyxis is a plugin of srun, and this job is started without it"
    return Problem(key=f"{_KEY}.kind", what=what, hint="submit it with hydra/launcher=submitit, or use kind=enroot")


def _no_engine(config: ContainerConfig, program: str) -> Problem:
    hint = f"{_SOURCES[config.kind]}, choose another {_KEY}.kind, or say how it is called with {_KEY}.command"
    return Problem(key=f"{_KEY}.kind", what=f"this machine has no {program}", hint=hint)


def _missing_devices(config: ContainerConfig) -> list[Problem]:
    named = config.devices if isinstance(config.devices, list) else []
    return [
        Problem(key=f"{_KEY}.devices", what=f"this machine has no {device}")
        for device in named
        if device.startswith("/") and not Path(device).exists()
    ]
