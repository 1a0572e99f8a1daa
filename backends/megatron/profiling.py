"""Traces of torch.profiler and snapshots of GPU memory, written into the run's folder for profiles.

A trace covers the last `active` of every `every` steps, after `warmup` steps in which the profiler only runs.
"""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from primus_hydra.config.schema.observe import ProfilerConfig
from primus_hydra.errors import Problem, UserError

_log = logging.getLogger(__name__)

_HISTORY_ENTRIES = 1_000_000
"""Allocations that a snapshot remembers, as many as in torchtitan's."""


def profiled_ranks(text: str, world_size: int) -> set[int]:
    """Return the ranks that `profile_ranks` names: "all", or numbers with commas between them; raises UserError."""
    if text.strip() == "all":
        return set(range(world_size))
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        what = f"{text!r} does not name ranks"
        raise UserError(Problem(key="backend.config.loop.profile_ranks", what=what, hint="all, or numbers like 0,8"))
    return {int(part) for part in parts}


class Profiler:
    """Records while it is entered, if this rank is `recorded`; `step` is called after every training step."""

    def __init__(
        self, settings: ProfilerConfig, folder: Path, *, rank: int, step: int, cuda: bool, recorded: bool = True
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._rank = rank
        self._step = step
        self._ended = False
        self._snapshots = settings.memory_snapshot and cuda and recorded
        self._trace = self._tracer(cuda) if settings.enable and recorded else None

    def __enter__(self) -> Self:
        if self._trace is not None:
            self._trace.start()
        if self._snapshots:
            torch.cuda.memory._record_memory_history(max_entries=_HISTORY_ENTRIES, stacks="python")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._trace is not None:
            # What torch hands over when it is stopped is a part of a window, or nothing.
            self._ended = True
            self._trace.stop()
        if self._snapshots and isinstance(error, torch.OutOfMemoryError):
            self._write_snapshot("out-of-memory")
        if self._snapshots:
            torch.cuda.memory._record_memory_history(enabled=None)

    def step(self) -> None:
        """Count a finished training step."""
        self._step += 1
        if self._trace is not None:
            self._trace.step()
        if self._snapshots and self._step % self._settings.every == 0:
            self._write_snapshot(f"step-{self._step}")

    def _tracer(self, cuda: bool) -> torch.profiler.profile:
        settings = self._settings
        activities = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        waiting = max(0, settings.every - settings.warmup - settings.active)
        return torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=waiting, warmup=settings.warmup, active=settings.active),
            on_trace_ready=self._write_trace,
        )

    def _write_trace(self, trace: torch.profiler.profile) -> None:
        if self._ended:
            return
        file = self._file("traces", f"step-{self._step}", "json")
        trace.export_chrome_trace(str(file))
        _log.info("wrote the trace %s", file)

    def _write_snapshot(self, name: str) -> None:
        file = self._file("memory", name, "pickle")
        with file.open("wb") as output:
            pickle.dump(torch.cuda.memory._snapshot(), output, protocol=4)
        _log.info("wrote the memory snapshot %s", file)

    def _file(self, kind: str, name: str, suffix: str) -> Path:
        folder = self._folder / kind / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"rank-{self._rank}.{suffix}"
