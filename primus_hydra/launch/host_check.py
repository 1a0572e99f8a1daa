"""Whether a job for a platform can run on this very machine. Pure: compares a configuration with a detection."""

from __future__ import annotations

from primus_hydra.config.schema.platform import PlatformConfig
from primus_hydra.errors import Problem
from primus_hydra.host.detect import Detection
from primus_hydra.host.gpu import Gpu


def host_problems(platform: PlatformConfig, detection: Detection, ranks_per_node: int | None = None) -> list[Problem]:
    """Return what stands against training here; a CPU job runs everywhere.

    `ranks_per_node` (default: the platform's GPUs per node) is how many GPUs the job takes on this machine.
    """
    if platform.is_cpu:
        return []
    if not detection.gpus or not all(_fits(gpu, platform) for gpu in detection.gpus):
        return [_other_machine(platform, detection)]
    return _count_problems(platform, detection, ranks_per_node)


def _fits(gpu: Gpu, platform: PlatformConfig) -> bool:
    """Whether the GPU is one of the platform's; a platform without names takes every GPU of its vendor."""
    return gpu.vendor == platform.vendor and (not platform.product_names or gpu.matches(platform.product_names))


def _other_machine(platform: PlatformConfig, detection: Detection) -> Problem:
    here = "platform=cpu" if detection.platform == "cpu" else "platform=auto or platform=cpu"
    ways = [
        f"train on what is here with {here}",
        "see the plan without training with task=plan",
        "start it on the cluster, one process per rank, under srun or torchrun",
    ]
    if any(gpu.vendor == platform.vendor for gpu in detection.gpus):
        ways.append("if this is the same GPU by another name, add that name to platform.product_names")
    return Problem(
        key="platform",
        what=f"{platform.name} was asked for, but this machine has {detection.seen}",
        hint="; ".join([*ways, *detection.notes]),
    )


def _count_problems(platform: PlatformConfig, detection: Detection, ranks_per_node: int | None) -> list[Problem]:
    wanted = ranks_per_node or platform.gpus_per_node
    if wanted <= detection.gpu_count:
        return []
    key = "launch.ranks_per_node" if ranks_per_node else "platform.gpus_per_node"
    return [
        Problem(
            key=key,
            what=f"{wanted} GPUs were asked for, but this machine has {detection.seen}",
            hint=f"use {key}={detection.gpu_count}",
        )
    ]
