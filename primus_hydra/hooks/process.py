"""Runs one hook's process to its end: in a session of its own, without a standard input, for a limited time.

Every line goes to the caller as it comes. When the process has ended, or has to, everything that is left in its session
is ended too: what must live on needs a session of its own (setsid). Signals that stop a job stop the hook.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import IO

from primus_hydra.run.process import session_of
from primus_hydra.runtime.signals import STOP_SIGNALS
from primus_hydra.runtime.tether import PARENT_VARIABLE

GRACE_S = 5.0
"""Time between asking a hook to end and killing it."""
_TICK_S = 0.1
_LONGEST_LINE = 1 << 20
"""Bytes after which a line is passed on in pieces, so that a hook cannot fill this process's memory."""

_CHUNK, _CHUNKS = 1 << 16, 16
"""Bytes of one read, and reads in a row: a hook that never stops talking must still be stopped in time."""

OnLine = Callable[[str, bytes], None]
"""Is given `out` or `err`, and a line without its line feed."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a process: Popen's code (negative for a signal), and what ended it early, if something did."""

    code: int
    seconds: float
    timed_out: bool = False
    stopped_by: int | None = None


@dataclass
class Stops:
    """The signals that this process got; a second Ctrl-C allows no grace."""

    received: list[int] = field(default_factory=list)

    @property
    def first(self) -> int | None:
        """The first signal, if any came."""
        return self.received[0] if self.received else None

    @property
    def at_once(self) -> bool:
        """Whether there is no patience left."""
        return self.received.count(signal.SIGINT) > 1

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)

    @classmethod
    @contextlib.contextmanager
    def listening(cls) -> Iterator[Stops]:
        """Take note of signals instead of obeying them; outside the main thread the caller's handlers stay."""
        stops = cls()
        if threading.current_thread() is not threading.main_thread():
            yield stops
            return
        wanted = (*STOP_SIGNALS, signal.SIGHUP)
        heard = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, stops._note) for number in heard}
        try:
            yield stops
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    stops: Stops,
    on_line: OnLine,
    keep_open: Sequence[int] = (),
) -> Ended:
    """Run a command to its end; `keep_open` are descriptors that it inherits. Raises OSError if it cannot start."""
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        env={**environment, PARENT_VARIABLE: str(os.getpid())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=tuple(keep_open),
    )
    running = _Running(process, stops, began + timeout_s, on_line)
    try:
        running.follow()
    finally:
        code = running.close()
    # A scheduler may have sent the signal to the hook too, which then ended before we looked.
    stopped = running.stopped or (stops.first is not None and code == -stops.first)
    return Ended(
        code=code,
        seconds=time.monotonic() - began,
        timed_out=running.timed_out,
        stopped_by=stops.first if stopped else None,
    )


class _Running:
    """A process that has started."""

    def __init__(self, process: subprocess.Popen[bytes], stops: Stops, until: float, on_line: OnLine) -> None:
        self._process = process
        self._stops = stops
        self._until = until
        self._killed_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._lines = {}
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._lines[name] = _Lines(stream, name, on_line)
            self._selector.register(stream, selectors.EVENT_READ, name)
        self.timed_out = False
        self.stopped = False

    def follow(self) -> None:
        """Pass on what it says until it has ended."""
        while not self._has_ended():
            self._read(_TICK_S)
            self._end_if_due()

    def close(self) -> int:
        """End what is left of the session, pass on the last words, and return the code."""
        while not self._has_ended():  # we come from an error
            self._send(signal.SIGKILL)
            time.sleep(_TICK_S)
        # The leader is not reaped yet, so its number cannot have become another session's.
        self._send(signal.SIGKILL)
        code = self._process.wait()
        self._read(0)
        for lines in self._lines.values():
            lines.close()
        self._selector.close()
        return code

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _read(self, wait_s: float) -> None:
        if not self._selector.get_map():
            time.sleep(wait_s)  # it has closed its outputs and goes on
            return
        for key, _ in self._selector.select(wait_s):
            if not self._lines[key.data].read():
                self._selector.unregister(key.fileobj)

    def _end_if_due(self) -> None:
        now = time.monotonic()
        if self._killed_at is None:
            self.stopped = self._stops.first is not None
            self.timed_out = not self.stopped and now > self._until
            if self.stopped or self.timed_out:
                self._send(signal.SIGTERM)
                self._killed_at = now + GRACE_S
        elif now > self._killed_at or self._stops.at_once:
            self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        for pid in session_of(self._process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


class _Lines:
    """Cuts a stream in lines."""

    def __init__(self, stream: IO[bytes], name: str, on_line: OnLine) -> None:
        self._stream = stream
        self._name = name
        self._on_line = on_line
        self._rest = b""

    def read(self) -> bool:
        """Pass on what is there, a pipe's content at most; False if nothing more can come."""
        for _ in range(_CHUNKS):
            try:
                received = os.read(self._stream.fileno(), _CHUNK)
            except BlockingIOError:
                return True
            if not received:
                return False
            *lines, self._rest = (self._rest + received).split(b"\n")
            for line in lines:
                self._on_line(self._name, line)
            if len(self._rest) > _LONGEST_LINE:
                self._on_line(self._name, self._rest)
                self._rest = b""
        return True

    def close(self) -> None:
        """Pass on a last line without a line feed."""
        if self._rest:
            self._on_line(self._name, self._rest)
        self._stream.close()
