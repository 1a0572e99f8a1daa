"""Signals that ask for a stop. The handler takes a note and nothing else; the step decides (`runtime.stop`)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
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
        # What came while they were held back comes now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, chosen)
        os.register_at_fork(after_in_child=lambda: _restore(chosen))

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or number


@contextlib.contextmanager
def holding_stops() -> Iterator[None]:
    """Let a process that is started meanwhile get no stop before it is ready for one: a `StopRequest` takes it then.

    A scheduler signals every process of a step at any moment, also one that has just begun and would die of it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def outlive_stops() -> None:
    """Let this process live on when a stop is asked for: a scheduler signals every process of a step, not only ranks.

    Processes that it starts or forks take the default again, or their own.
    """
    for number in STOP_SIGNALS:
        # Not SIG_IGN, which they would inherit.
        signal.signal(number, lambda *_: None)


def _restore(signals: Iterable[signal.Signals]) -> None:
    """Give a forked helper (a data loader's worker) the default handlers, or it could not be ended.

    But for SIGUSR2, by which nobody ends one: a scheduler sends it to all, and the rank still needs its helpers.
    """
    for number in signals:
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        else:
            signal.signal(number, signal.SIG_IGN if number == signal.SIGUSR2 else signal.SIG_DFL)
