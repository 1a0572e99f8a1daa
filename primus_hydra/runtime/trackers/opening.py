"""Opens the trackers that a job asks for, in the one rank that reports metrics."""

from __future__ import annotations

from collections.abc import Callable

from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import HostError, PrimusError
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.sinks import FanOut, FileSink, Tracker
from primus_hydra.runtime.trackers.check import enabled_trackers, missing_package
from primus_hydra.runtime.trackers.label import RunLabel, label_of
from primus_hydra.runtime.trackers.status import TrackerStatus

Opener = Callable[[JobConfig, RunLabel], tuple[Tracker, str]]


def open_metrics(job: JobConfig, paths: RunPaths, *, attempt: int, restart: int, resume_from: int | None) -> FanOut:
    """Open metrics.jsonl and the trackers.

    Raises HostError when metrics.jsonl cannot be written, when a tracker's package is missing, or when W&B has no
    login. A tracker that fails in another way is reported and left out.
    """
    status = TrackerStatus(paths.trackers)
    main = FileSink(paths.metrics, attempt, restart)
    return FanOut(main, open_trackers(job, paths, resume_from, status), status.dropped)


def open_trackers(job: JobConfig, paths: RunPaths, resume_from: int | None, status: TrackerStatus) -> list[Tracker]:
    """Open each tracker that the job asks for; raises HostError for what only the user can mend."""
    names = enabled_trackers(job)
    if not names:
        return []
    label = label_of(job, paths, resume_from)
    opened = (_open(name, job, label, status) for name in names)
    return [tracker for tracker in opened if tracker is not None]


def _open(name: str, job: JobConfig, label: RunLabel, status: TrackerStatus) -> Tracker | None:
    try:
        tracker, look = _OPENERS[name](job, label)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == name:
            raise HostError(missing_package(name)) from error
        status.dropped(name, f"did not open: {error}")
        return None
    except PrimusError:
        raise
    except Exception as error:
        status.dropped(name, f"did not open: {type(error).__name__}: {error}")
        return None
    status.opened(name, look)
    return tracker


def _tensorboard(job: JobConfig, label: RunLabel) -> tuple[Tracker, str]:
    from primus_hydra.runtime.trackers.tensorboard import TensorBoardTracker

    tracker = TensorBoardTracker(job, label)
    return tracker, tracker.look


def _wandb(job: JobConfig, label: RunLabel) -> tuple[Tracker, str]:
    from primus_hydra.runtime.trackers.wandb import WandbTracker

    tracker = WandbTracker(job, label)
    return tracker, tracker.look


def _mlflow(job: JobConfig, label: RunLabel) -> tuple[Tracker, str]:
    from primus_hydra.runtime.trackers.mlflow import open_mlflow

    return open_mlflow(job, label)


_OPENERS: dict[str, Opener] = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}
