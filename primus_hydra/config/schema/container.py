"""The container that ranks run in. The launcher itself, and what it prepares, stay outside of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.schema.key import key

ContainerKind = Literal["none", "docker", "podman", "apptainer", "enroot", "pyxis"]

PASSED_NAMES = (
    "HF_TOKEN",
    "WANDB_*",
    "MLFLOW_*",
    "NCCL_*",
    "RCCL_*",
    "HSA_*",
    "TORCH_*",
    "*_proxy",
    "*_PROXY",
)
"""What of the caller's environment reaches the ranks unless the user says otherwise: tokens, and words to libraries."""


@dataclass(frozen=True, kw_only=True)
class ContainerConfig:
    """What to run the ranks of each node in. Nothing is privileged unless `extra_args` says so."""

    kind: ContainerKind = key(
        "none", "Who runs the container of each node; pyxis (enroot as a plugin of srun) needs a submitted job."
    )
    image: str | None = key(None, "Image as the engine names it, or a file (.sif, .sqsh) for those that take one.")
    python: str = key("python3", "Interpreter in the image; it needs the backend's packages and this project's.")
    mounts: list[str] = key(
        [], "More of this machine to see, as SRC[:DST[:ro]]; what the job itself needs is mounted without being named."
    )
    workdir: str | None = key(None, "Folder in the container to work in; null: the one that the command was typed in.")
    env: list[str] = key(
        list(PASSED_NAMES), "Names of the caller's variables that ranks get, * is any text; what env sets is passed."
    )
    devices: str | list[str] = key(
        "auto", "auto: the platform's GPUs and InfiniBand, where there is some; none; or a list of devices (/dev/...)."
    )
    shm_size: str | None = key(None, "Size of a /dev/shm of its own, as 64g; null: the node's is shared.")
    network: str = key("host", "Network of docker and podman.")
    user: str | None = key(None, "User in the container (UID:GID or a name), for docker and podman; null: the caller.")
    command: list[str] = key(
        [], "How to call the engine, with its own options, as [sudo, docker]; empty: by the name of the kind."
    )
    extra_args: list[str] = key([], "More options of the engine's run (docker, podman), exec, start, or of srun.")
