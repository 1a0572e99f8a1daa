"""Patches of what torchtitan measures: device memory, peak rate, and a notice that does not apply to us."""

from __future__ import annotations

import math

from primus_hydra.patches.torchtitan.conditions import VERSIONS, on_cpu, pipelined
from primus_hydra.patching import PatchContext, register_patch

_GIB = 2**30


class ProcessMemoryMonitor:
    """torchtitan's device memory monitor for a processor: the peak resident memory of this process.

    The peak is since the start of the process; the operating system offers no reset that other readers would not feel.
    """

    device_name = "cpu"

    def __init__(self) -> None:
        import psutil

        self.device_capacity = psutil.virtual_memory().total
        self.device_capacity_gib = self.device_capacity / _GIB

    def get_peak_stats(self) -> tuple[float, ...]:
        """Return torchtitan's `DeviceMemStats`, with the same number as active and as reserved memory."""
        import resource

        from torchtitan.components.metrics import DeviceMemStats

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        gib, percent = peak / _GIB, 100 * peak / self.device_capacity
        stats: tuple[float, ...] = DeviceMemStats(gib, percent, gib, percent, 0, 0)
        return stats

    def reset_peak_stats(self) -> None:
        """Do nothing; see the class."""


@register_patch(
    "torchtitan.cpu-memory",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    condition=on_cpu,
    tags=("cpu",),
    why="torch.cpu has no memory statistics and no device name, so the metrics processor fails when it is built",
)
def monitor_process_memory(context: PatchContext) -> None:
    """Measure the memory of the process instead of a device's."""
    from torchtitan.components import metrics

    metrics.build_device_memory_monitor = ProcessMemoryMonitor


@register_patch(
    "torchtitan.peak-flops",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    tags=("metrics",),
    why="torchtitan runs lspci and guesses an A100 for hardware it does not know; the platform file knows the peak",
)
def peak_from_the_platform(context: PatchContext) -> None:
    """Answer with the platform's dense peak for the compute format; infinity (an MFU of zero) where it has none."""
    from torchtitan.tools import utils

    peak = context.job.platform.peak_tflops.get(context.job.precision.compute)
    flops = peak * 1e12 if peak else math.inf
    utils.get_peak_flops = lambda device_name: flops


@register_patch(
    "torchtitan.pipeline-loss-notice",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    condition=pipelined,
    tags=("noise",),
    why="torchtitan tells the user to edit LOG_RANK in its own launch script to see the loss; our runs show the loss "
    "of the last stage",
)
def drop_the_loss_notice(context: PatchContext) -> None:
    """Leave the notice out."""
    import torchtitan.trainer as trainer

    trainer.ensure_pp_loss_visible = lambda **kwargs: None
