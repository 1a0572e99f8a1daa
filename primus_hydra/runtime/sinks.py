"""Where the metrics of a rank go: metrics.jsonl, which must work, and trackers, which may fail.

A run is not lost because a tracker is down or slow: a tracker that fails is reported once and dropped, and one that
talks to a server does so in a thread of its own, so that the training never waits for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from primus_hydra.errors import HostError, Problem
from primus_hydra.run.metrics import MetricsWriter
from primus_hydra.run.space import FULL
from primus_hydra.runtime.contracts import StepMetrics

_log = logging.getLogger(__name__)

Report = Callable[[str, str], None]
"""Told the name of a tracker and what happened to it."""


class MainSink(Protocol):
    """The sink that must work; its errors end the run."""

    def log(self, metrics: StepMetrics) -> None:
        """Record one step."""

    def close(self) -> None:
        """Close it."""


class Tracker(ABC):
    """A metrics sink that may fail. Any exception from it drops it."""

    name: str

    @abstractmethod
    def log(self, metrics: StepMetrics) -> None:
        """Record one step."""

    @abstractmethod
    def close(self, *, failed: bool = False) -> None:
        """Send what is still unsent and end; `failed` is how the attempt ended."""


def values_of(metrics: StepMetrics) -> dict[str, float]:
    """Return what was measured, by name, without the step; the same names in metrics.jsonl and in every tracker."""
    own = {
        field.name: getattr(metrics, field.name)
        for field in dataclasses.fields(metrics)
        if field.name not in ("step", "extra")
    }
    # A backend's extra value cannot replace one of ours.
    return {**(metrics.extra or {}), **{name: float(value) for name, value in own.items() if value is not None}}


class FileSink:
    """Writes metrics.jsonl; raises HostError when it cannot, since a run without metrics is not worth its GPUs.

    A disk that fills up once the run has written costs rows, not the run: it may have room again before the next save.
    """

    def __init__(self, path: Path, attempt: int, restart: int) -> None:
        self._path = path
        with _as_host_error(path):
            self._writer = MetricsWriter(path, attempt, restart)
        self._written = False
        self._lost = 0

    def log(self, metrics: StepMetrics) -> None:
        """Append one row."""
        with _as_host_error(self._path):
            try:
                self._writer.write({"step": metrics.step, **values_of(metrics)})
            except OSError as error:
                if not self._written or error.errno not in FULL:
                    raise
                self._lose(metrics.step)
                return
        if self._lost:
            _log.warning("metrics are written again, from step %d; %d rows are lost", metrics.step, self._lost)
        self._written, self._lost = True, 0

    def _lose(self, step: int) -> None:
        if not self._lost:
            _log.warning("the disk is full: metrics of step %d and later are lost until there is room", step)
        self._lost += 1

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class FanOut:
    """Sends each step to the main sink, then to the trackers; the main sink's errors pass, a tracker's drop it."""

    def __init__(self, main: MainSink, trackers: Sequence[Tracker], report: Report) -> None:
        self._main = main
        self._trackers = list(trackers)
        self._report = report

    def log(self, metrics: StepMetrics) -> None:
        """Record one step everywhere."""
        self._main.log(metrics)
        self._try_each(lambda tracker: tracker.log(metrics), f"stopped at step {metrics.step}")

    def close(self, *, failed: bool = False) -> None:
        """End the trackers, then the main sink."""
        self._try_each(lambda tracker: tracker.close(failed=failed), "did not close")
        self._trackers.clear()
        self._main.close()

    def _try_each(self, act: Callable[[Tracker], None], what: str) -> None:
        for tracker in tuple(self._trackers):
            try:
                act(tracker)
            except Exception as error:
                self._trackers.remove(tracker)
                self._report(tracker.name, f"{what}: {type(error).__name__}: {error}")


class InBackground(Tracker):
    """Runs a slow tracker in a thread. An error there, or `capacity` unsent steps, surfaces at the next call."""

    def __init__(self, tracker: Tracker, *, capacity: int = 10_000, close_timeout_s: float = 30.0) -> None:
        self.name = tracker.name
        self._tracker = tracker
        self._close_timeout_s = close_timeout_s
        self._queue: queue.Queue[StepMetrics | None] = queue.Queue(capacity)
        self._error: Exception | None = None
        # A daemon: a server that never answers must not keep the rank from ending.
        self._thread = threading.Thread(target=self._work, name=f"tracker-{self.name}", daemon=True)
        self._thread.start()

    def log(self, metrics: StepMetrics) -> None:
        """Queue one step; raises the thread's error, or queue.Full."""
        if self._error:
            raise self._error
        self._queue.put_nowait(metrics)

    def close(self, *, failed: bool = False) -> None:
        """Wait for the queued steps, then close the tracker; raises TimeoutError when that takes too long."""
        if not self._error:
            self._queue.put(None, timeout=self._close_timeout_s)
            self._thread.join(self._close_timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._queue.qsize()} steps were not sent within {self._close_timeout_s:g} s")
        if self._error:
            raise self._error
        self._tracker.close(failed=failed)

    def _work(self) -> None:
        try:
            while (metrics := self._queue.get()) is not None:
                self._tracker.log(metrics)
        except Exception as error:
            self._error = error


@contextlib.contextmanager
def _as_host_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostError(Problem(what=f"metrics cannot be written: {error}", where=str(path))) from error
