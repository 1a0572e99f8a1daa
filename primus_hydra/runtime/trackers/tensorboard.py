"""TensorBoard event files below the run directory."""

from __future__ import annotations

import shlex

from torch.utils.tensorboard import SummaryWriter

from primus_hydra.config.schema import JobConfig
from primus_hydra.runtime.contracts import StepMetrics
from primus_hydra.runtime.sinks import Tracker, values_of
from primus_hydra.runtime.trackers.label import RunLabel

_FLUSH_S = 10


class TensorBoardTracker(Tracker):
    """Writes scalars; a resumed attempt hides the steps that it will repeat."""

    name = "tensorboard"

    def __init__(self, job: JobConfig, label: RunLabel) -> None:
        folder = label.folder / "tensorboard"
        purge = None if label.resume_from is None else label.resume_from + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge, flush_secs=_FLUSH_S)
        self.look = shlex.join(["tensorboard", "--logdir", str(folder)])
        if purge is None:
            self._writer.add_text("config", _table(label))

    def log(self, metrics: StepMetrics) -> None:
        """Record one step."""
        for name, value in values_of(metrics).items():
            self._writer.add_scalar(name, value, metrics.step)

    def close(self, *, failed: bool = False) -> None:
        """Flush and close the event file."""
        self._writer.close()


def _table(label: RunLabel) -> str:
    rows = "\n".join(f"|{key}|{value}|" for key, value in label.config.items())
    return f"|key|value|\n|---|---|\n{rows}"
