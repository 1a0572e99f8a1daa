"""One look at the ranks of this node: which live, which fell silent, and a signal to each exactly once.

A rank names itself by a file as soon as it can take a signal, so a stop that is asked for during start-up reaches it
when it is ready. torch's agent does not tell of a rank that left with code 0; this does.
"""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

from primus_hydra.run.paths import AttemptPaths
from primus_hydra.runtime.outcome import Outcome, read_outcome


class RankWatch:
    """One rank over its restarts; `restarts` is the number of the current process, 0 for the first."""

    def __init__(self, rank: int, paths: AttemptPaths) -> None:
        self.rank = rank
        self.restarts = 0
        self._paths = paths
        self._process: psutil.Process | None = None
        self._gone = False
        self._told = False
        self._announced: tuple[int, int] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the current process, None before it named itself."""
        return self._process.pid if self._process else None

    @property
    def named(self) -> bool:
        """Whether the rank has named itself, in any of its starts."""
        return self._announced is not None

    @property
    def alive(self) -> bool:
        """Whether the process runs; a zombie does not."""
        if self._process is None or self._gone:
            return False
        try:
            self._gone = not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            self._gone = True
        return not self._gone

    @property
    def outcome(self) -> Outcome | None:
        """What the rank said of its end."""
        return read_outcome(self._paths.outcome(self.rank))

    def look(self) -> None:
        """See whether there is a new process, and end what the one before left behind."""
        said = read_pid(self._paths, self.rank)
        if said is None or said == self._announced:
            return
        if self._announced is not None:
            end_session(self._announced[0])
        self._announced = said
        pid, self.restarts = said
        self._told = False
        try:
            self._process, self._gone = psutil.Process(pid), False
        except psutil.NoSuchProcess:
            self._process, self._gone = None, True

    def is_lost(self) -> bool:
        """Whether the process ended without an outcome."""
        # The order matters: an outcome is written before the process ends.
        started = self._process is not None or self._gone
        return started and not self.alive and self.outcome is None

    def tell(self, number: int) -> None:
        """Send a signal to the current process, once."""
        if not self._told and self.alive and self.pid is not None:
            self._told = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the current process."""
        if self.alive and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def end_session(leader: int) -> None:
    """Kill every process of the session that `leader` began: helpers of a rank outlive it otherwise."""
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def read_pid(paths: AttemptPaths, rank: int) -> tuple[int, int] | None:
    """Return the process id of a rank and the number of its restart."""
    try:
        pid, restart = paths.pid(rank).read_text(encoding="ascii").split()
        return int(pid), int(restart)
    except (OSError, ValueError):
        return None
