"""The launcher that Hydra's sweepers call: all points of a batch are started before any is waited for.

Hydra insists on finding the class in this namespace; what is done with the points is the command's own. Refuses to
serve another Hydra application: its jobs are functions, which nobody here would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol, runtime_checkable

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class PointFailedError(Exception):
    """A point of a sweep has no value; the message says why. A sweeper gets it in place of the value."""


class _End(Protocol):
    @property
    def value(self) -> float | None: ...

    @property
    def problem(self) -> str | None: ...


@runtime_checkable
class RunsBatches(Protocol):
    """What the command gives Hydra as its task: it runs the points of a batch together."""

    def run_batch(self, batch: Sequence[Sequence[str]]) -> Sequence[_End]:
        """Run the points with these overrides to their ends; return how each ended, in order."""


class GatheringLauncher(Launcher):
    """Hands each batch to the command, and returns a value or an error for each point."""

    def __init__(self) -> None:
        self._command: RunsBatches | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take the command that started the sweeper; raises TypeError for another application."""
        command: object = task_function
        if not isinstance(command, RunsBatches):
            raise TypeError(
                f"{type(self).__name__} serves the command primus_hydra only: choose another hydra/launcher"
            )
        self._command = command

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run a batch; a point that failed has the status FAILED and its error, and stops no other."""
        if self._command is None:
            raise RuntimeError("a launcher is set up before it launches")
        ends = self._command.run_batch(job_overrides)
        return [_returned(overrides, end) for overrides, end in zip(job_overrides, ends, strict=True)]


class _FailedReturn(JobReturn):
    """A point without a value. Hydra's own prints all overrides whenever a sweeper asks; ours were told already."""

    @property  # type: ignore[misc]
    def return_value(self) -> NoReturn:
        raise self._return_value


def _returned(overrides: Sequence[str], end: _End) -> JobReturn:
    if end.value is None:
        error = PointFailedError(end.problem)
        return _FailedReturn(overrides=list(overrides), status=JobStatus.FAILED, _return_value=error)
    return JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED, _return_value=end.value)
