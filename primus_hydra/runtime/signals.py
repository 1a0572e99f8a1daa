"""Signals that ask for a stop. The handler takes a note and nothing else; the step decides (`runtime.stop`)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from types import FrameType

STOP_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""Signals that ask a rank to stop; NCCL may catch SIGUSR1."""

DUMP_SIGNAL = signal.SIGRTMIN + 5
"""Asks a rank for the stacks of all its threads, in its log. No library is known to use it."""


class StopRequest:
    """Whether somebody asked this process to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def requested(self) -> bool:
        """Whether a stop was asked for."""
        return self.signal is not None

    def install(self, signals: Iterable[signal.Signals] = STOP_SIGNALS) -> None:
        """Take note of these signals from now on, in this process only; main thread only."""
        chosen = tuple(signals)
        for number in chosen:
            signal.signal(number, self._note)
            # Libraries written in C++ do not all retry a system call that a signal interrupted.
            signal.siginterrupt(number, False)
        os.register_at_fork(after_in_child=lambda: _restore(chosen))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number


def _restore(signals: Iterable[signal.Signals]) -> None:
    """Give a forked helper (a data loader's worker) the default handlers, or it could not be ended."""
    for number in signals:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
