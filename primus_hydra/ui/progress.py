"""The view of a run while it trains: a live line on a terminal, plain lines elsewhere.

Fed with rows of metrics.jsonl by the process that launched the ranks. It never ends a run: a screen that goes away
(a closed pipe) only silences the view.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from primus_hydra.run.metrics import Row
from primus_hydra.ui.pace import Pace, Snapshot
from primus_hydra.ui.screen import show
from primus_hydra.ui.words import amount, duration, loss

FIRST_STEPS = 3
"""Steps that plain lines always show, so that a log begins to move at once."""
LINE_EVERY_S = 5.0
"""Plain lines come at most this often after the first steps."""


class ProgressView:
    """Shows status texts, then steps; use it as a context manager.

    `stream` defaults to standard output; the live line is used when it is a terminal that can move its cursor.
    """

    def __init__(
        self, total_steps: int, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        target = sys.stdout if stream is None else stream
        live = target.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown", "")
        self._screen: _Screen = _Live(target, total_steps) if live else _Plain(target, total_steps, clock)
        self._pace = Pace(total_steps)
        self._source: tuple[object, object] | None = None

    def __enter__(self) -> ProgressView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def status(self, text: str) -> None:
        """Say what happens before the first step (preparing data, starting ranks, loading a checkpoint)."""
        self._screen.status(text)

    def say(self, text: str) -> None:
        """Print lines above the live line, or between the plain ones."""
        self._screen.say(text)

    def feed(self, rows: Iterable[Row]) -> None:
        """Take new rows; the newest is shown, and every validation loss."""
        for row in rows:
            self._announce_restart(row)
            snapshot = self._pace.take(row)
            if snapshot is not None:
                self._screen.step(snapshot)
        self._screen.refresh()

    def close(self) -> None:
        """Show the last step and leave the screen in order; may be called twice."""
        self._screen.close()

    def _announce_restart(self, row: Row) -> None:
        source = (row.get("attempt"), row.get("restart"))
        if self._source is not None and source != self._source:
            self.say(f"attempt {source[0]}, restart {source[1]}: training goes on with step {row.get('step')}")
        self._source = source


def line_of(shot: Snapshot, total_steps: int, width: int | None = None) -> str:
    """Return one step as text; with a `width`, what matters least is left out until the text fits."""
    head = f"step {shot.step:>{len(str(total_steps))}}/{total_steps}"
    parts = [part for part in _parts(shot) if part]
    while parts and width is not None and len("  ".join([head, *parts])) > width:
        parts.pop(_least(parts))
    return "  ".join([head, *parts])


def _parts(shot: Snapshot) -> list[str]:
    return [
        "" if shot.loss is None else f"loss {loss(shot.loss)}",
        "" if shot.smooth_loss is None else f"smooth {loss(shot.smooth_loss)}",
        "" if shot.validation_loss is None else f"validation {loss(shot.validation_loss)}",
        "" if shot.tokens_per_s is None else f"{amount(shot.tokens_per_s)} tok/s",
        "" if shot.mfu is None else f"MFU {100 * shot.mfu:.1f} %",
        "" if shot.memory_gib is None else f"mem {shot.memory_gib:.1f} GiB",
        "" if shot.eta_s is None else f"left {duration(shot.eta_s)}",
    ]


def _least(parts: list[str]) -> int:
    """Return the place of the part that goes first on a narrow screen."""
    for word in ("mem", "smooth", "MFU", "tok/s", "left", "validation"):
        for place, part in enumerate(parts):
            if word in part:
                return place
    return len(parts) - 1


class _Screen(ABC):
    """One way to show a run."""

    @abstractmethod
    def status(self, text: str) -> None: ...

    @abstractmethod
    def say(self, text: str) -> None: ...

    @abstractmethod
    def step(self, shot: Snapshot) -> None: ...

    @abstractmethod
    def refresh(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class _Plain(_Screen):
    """Whole lines, at a rate that a log file bears."""

    def __init__(self, stream: TextIO, total_steps: int, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._total = total_steps
        self._clock = clock
        self._printed = 0
        self._printed_at = -LINE_EVERY_S
        self._pending: Snapshot | None = None

    def status(self, text: str) -> None:
        self._write(text)

    def say(self, text: str) -> None:
        self._write(text)

    def step(self, shot: Snapshot) -> None:
        self._pending = shot
        if self._printed < FIRST_STEPS or shot.validation_loss is not None or shot.step >= self._total:
            self._flush()

    def refresh(self) -> None:
        if self._clock() - self._printed_at >= LINE_EVERY_S:
            self._flush()

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._pending is None:
            return
        self._write(line_of(self._pending, self._total))
        self._pending = None
        self._printed += 1
        self._printed_at = self._clock()

    def _write(self, text: str) -> None:
        show(f"{text}\n", self._stream)


class _Live(_Screen):
    """One line that moves; rich keeps other prints of this process above it.

    A terminal that goes away fails before its SIGHUP is heard; that is not to end a run.
    """

    def __init__(self, stream: TextIO, total_steps: int) -> None:
        self._total = total_steps
        self._console = Console(file=stream, highlight=False)
        self._progress = Progress(
            BarColumn(bar_width=None),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            expand=True,
        )
        self._task = self._progress.add_task("starting", total=None)
        self._shown: Snapshot | None = None
        self._progress.start()

    def status(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._progress.update(self._task, description=text, total=None, completed=0, refresh=True)
        self._shown = None

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._console.print(Text(text))

    def step(self, shot: Snapshot) -> None:
        self._shown = shot
        if shot.validation_loss is not None:
            self.say(f"step {shot.step}/{self._total}  validation {loss(shot.validation_loss)}")

    def refresh(self) -> None:
        if self._shown is None:
            return
        bar = max(8, self._columns() // 6)
        text = line_of(self._shown, self._total, self._columns() - bar - 1)
        with contextlib.suppress(OSError):
            self._progress.update(self._task, description=text, total=self._total, completed=self._shown.step)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.refresh()
            self._progress.stop()

    def _columns(self) -> int:
        return self._console.width or shutil.get_terminal_size().columns
