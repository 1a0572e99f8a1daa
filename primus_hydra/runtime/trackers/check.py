"""Whether the packages of the trackers that a job asks for are installed; nothing is imported to find out."""

from __future__ import annotations

from importlib.util import find_spec

from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem


def enabled_trackers(job: JobConfig) -> list[str]:
    """Return the names of the trackers that the job asks for; each is also its package and its pip extra."""
    chosen = {
        "tensorboard": job.tracker.tensorboard.enable,
        "wandb": job.tracker.wandb.enable,
        "mlflow": job.tracker.mlflow.enable,
    }
    return [name for name, enabled in chosen.items() if enabled]


def tracker_problems(job: JobConfig) -> list[Problem]:
    """Return one problem for each missing package; a caller raises them as a HostError before ranks start."""
    return [missing_package(name) for name in enabled_trackers(job) if find_spec(name) is None]


def missing_package(name: str) -> Problem:
    """Say that the package of a tracker is missing, and how to get it."""
    return Problem(
        key=f"tracker.{name}.enable",
        what=f"the Python package {name} is not installed",
        hint=f"pip install 'primus-hydra[{name}]', or leave the tracker out (tracker=none)",
    )
