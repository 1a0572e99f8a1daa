"""The run itself: its backend, patches, launch and place on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from primus_hydra.config.schema.container import ContainerConfig
from primus_hydra.config.schema.key import REQUIRED, key, node
from primus_hydra.config.schema.slurm import SlurmConfig


@dataclass(frozen=True, kw_only=True)
class BackendConfig:
    """Who trains: an adapter, and the backend's own keys."""

    _target_: str = key(REQUIRED, "Import path of the adapter class.")
    name: str = key(REQUIRED, "Name of the backend.")
    trainer: str | None = key(None, "Import path of a trainer class of your own; null takes the backend's.")
    path: str | None = key(None, "Checkout of the backend to use instead of the installed package.")
    config: dict[str, Any] = key({}, "The backend's own keys, checked against the installed version.")


@dataclass(frozen=True, kw_only=True)
class PatchesConfig:
    """Which registered patches may apply; their own conditions still decide."""

    enabled: list[str] = key(["*"], "Patch ids or globs that may apply.")
    disabled: list[str] = key([], "Patch ids or globs that never apply.")


@dataclass(frozen=True, kw_only=True)
class TimeoutsConfig:
    """How long a rank may go without progress before the attempt is taken for hung."""

    startup: float = key(1800.0, "From the start of a rank to its first finished step.", unit="s", gt=0)
    step: float = key(900.0, "Between two finished steps.", unit="s", gt=0)
    checkpoint: float = key(1800.0, "In a save or a load.", unit="s", gt=0)
    validation: float = key(1800.0, "In a measurement of the validation loss.", unit="s", gt=0)


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """How many ranks start, and how long things may take."""

    nodes: int = key(1, "Nodes of the job.", gt=0)
    ranks_per_node: int | None = key(None, "Ranks on each node; null: one per GPU, or what the CPU layout needs.", gt=0)
    threads_per_rank: int | None = key(None, "OMP_NUM_THREADS of a rank; null shares the cores.", gt=0)
    start: Literal["fork_server", "subprocess"] = key(
        "fork_server", "How several ranks start: forked from one prepared process, or each as a Python of its own."
    )
    bind: Literal["auto", "none"] = key(
        "auto", "CPUs of a rank: auto keeps it near its GPU, or on its share of the NUMA nodes, where that helps."
    )
    max_restarts: int = key(0, "Restarts of all ranks after a rank died.", ge=0)
    backoff_s: float = key(
        1.0, "Wait before a restart that made no progress; doubles each time, up to a minute.", unit="s", ge=0
    )
    timeouts: TimeoutsConfig = node(TimeoutsConfig, "When a silence is a hang.")
    check_paths: bool = key(
        True, "Check paths before the start; false: they are not checked here because they exist only on the nodes."
    )
    stop_grace_s: float = key(120.0, "Time to finish a step and save after a signal.", unit="s", gt=0)
    wait: bool = key(True, "Follow a submitted job to its end; false: print its id, how to find it again, and leave.")
    slurm: SlurmConfig = node(SlurmConfig, "What a job asks of Slurm.")
    container: ContainerConfig = node(ContainerConfig, "The container that ranks run in.")
    snapshot: bool = key(True, "Give a submitted job the code as it is now, whatever is edited while it waits or runs.")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Identity and place of the run."""

    name: str | None = key(None, "Name of the run; null: model, module and a hash of what determines the training.")
    dir: str = key("runs", "Folder that holds the runs.")
    group: str | None = key(None, "Free label to group runs in trackers.")
    user: str | None = key(None, "Free label of the owner in trackers.")
    fresh: bool = key(False, "Start in a new directory even if the run exists.")
