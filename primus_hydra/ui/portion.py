"""The view of work whose whole is known: a bar on a terminal, plain lines elsewhere, at a rate that a log file bears.

As with the view of a run, a screen that goes away ends nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from primus_hydra.ui.screen import show

LINE_EVERY_S = 5.0
"""Plain lines of progress come at most this often."""


class PortionView:
    """Shows which part of some work is done; use it as a context manager. `stream` defaults to standard error."""

    def __init__(self, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._said_at = clock()
        self._bar: Progress | None = None
        if self._stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown", ""):
            self._console = Console(file=self._stream, highlight=False)
            columns = (BarColumn(bar_width=24), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=self._console)
            self._task = self._bar.add_task("", total=1.0)

    def __enter__(self) -> PortionView:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        if self._bar is None:
            show(f"{text}\n", self._stream)
            return
        with contextlib.suppress(OSError):
            self._console.print(Text(text))

    def update(self, portion: float, text: str) -> None:
        """Show that `portion` (0 to 1) is done."""
        portion = min(max(portion, 0.0), 1.0)
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.update(self._task, completed=portion, description=text)
        elif self._clock() - self._said_at >= LINE_EVERY_S:
            self._said_at = self._clock()
            show(f"{portion:4.0%}  {text}\n", self._stream)
