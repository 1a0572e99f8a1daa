"""Weights & Biases, online or offline; every attempt of a run goes on in the same W&B run."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path

import wandb

from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import HostError, Problem
from primus_hydra.runtime.contracts import StepMetrics
from primus_hydra.runtime.sinks import Tracker, values_of
from primus_hydra.runtime.trackers.label import RunLabel

logger = logging.getLogger(__name__)


class WandbTracker(Tracker):
    """One W&B run; W&B itself sends in the background.

    Raises HostError when nobody is logged in. When the server does not answer, the attempt is recorded offline.
    """

    name = "wandb"

    def __init__(self, job: JobConfig, label: RunLabel) -> None:
        label.folder.mkdir(parents=True, exist_ok=True)
        offline = job.tracker.wandb.offline or os.environ.get("WANDB_MODE") == "offline"
        self._run = _start(job, label, offline=offline)
        # Steps are a value, not W&B's own counter, which refuses the steps that a resumed attempt repeats.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self.look = _sync_command(Path(self._run.dir)) if self._run.offline else str(self._run.url)

    def log(self, metrics: StepMetrics) -> None:
        """Record one step."""
        self._run.log({"step": metrics.step, **values_of(metrics)})

    def close(self, *, failed: bool = False) -> None:
        """Send the rest and end the W&B run."""
        self._run.finish(exit_code=1 if failed else 0)


def _start(job: JobConfig, label: RunLabel, *, offline: bool) -> wandb.Run:
    chosen = job.tracker.wandb
    try:
        return wandb.init(
            project=chosen.project,
            entity=chosen.entity,
            dir=str(label.folder),
            id=label.run_id,
            name=label.name,
            group=label.group,
            tags=[f"user:{label.user}"] if label.user else None,
            config=label.config,
            allow_val_change=True,
            mode="offline" if offline else "online",
            resume="allow",
            # Standard output belongs to the rank's log; W&B's own words would only repeat it.
            settings=wandb.Settings(console="off", silent=True),
        )
    except (wandb.errors.UsageError, wandb.errors.AuthenticationError) as error:
        raise HostError(_not_logged_in(error)) from error
    except wandb.errors.CommError as error:
        if offline:
            raise
        logger.warning("W&B cannot be reached, this attempt is recorded offline: %s", error)
        # W&B's service process still counts the failed run as open and would refuse its identity.
        wandb.teardown()
        return _start(job, label, offline=True)


def _sync_command(files: Path) -> str:
    # Every attempt has a folder of its own beside this one.
    return f"wandb sync {shlex.quote(str(files.parent.parent))}/offline-run-*"


def _not_logged_in(error: Exception) -> Problem:
    return Problem(
        key="tracker.wandb",
        what=f"W&B refuses to start: {error}",
        hint="run `wandb login`, set WANDB_API_KEY, or use tracker.wandb.offline=true",
    )
