"""How long ranks may take to save when a job in Slurm has to go: never longer than Slurm waits for them."""

from __future__ import annotations

from dataclasses import replace

from primus_hydra.config.schema import JobConfig

AFTER_SAVE_S = 10.0
"""What is left for the end of the ranks and for the way back into the queue."""


def stop_grace_s(job: JobConfig) -> float:
    """Return the shorter of `launch.stop_grace_s` and what the time limit's warning leaves, in seconds."""
    delay_s = job.launch.slurm.signal_delay_s
    return min(job.launch.stop_grace_s, max(delay_s - AFTER_SAVE_S, delay_s / 2))


def in_slurm(job: JobConfig) -> JobConfig:
    """Return the job as it may behave on nodes of Slurm."""
    return replace(job, launch=replace(job.launch, stop_grace_s=stop_grace_s(job)))
