"""Notices the end of a rank when it comes, rather than at the next look: the kernel wakes who waits for it (Linux).

Where the kernel cannot (before 5.3), a wait is a sleep, and the agent looks as often as it would without.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Mapping


class Deaths:
    """The ends of some processes, told by rank; close it when the processes are of no interest any more."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._poll = select.poll()
        self._ranks: dict[int, int] = {}
        self.ended: set[int] = set()
        """Ranks whose process has ended, whatever its exit code."""
        for rank, pid in pids.items():
            self._watch(rank, pid)

    def wait(self, timeout_s: float) -> bool:
        """Wait until one more process ends, or for the time; return whether one did."""
        if not self._ranks:
            time.sleep(timeout_s)
            return False
        ready = [descriptor for descriptor, _ in self._poll.poll(timeout_s * 1000)]
        for descriptor in ready:
            self._forget(descriptor)
        return bool(ready)

    def close(self) -> None:
        """Stop watching."""
        for descriptor in tuple(self._ranks):
            self._forget(descriptor)

    def _watch(self, rank: int, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self.ended.add(rank)
            return
        except (OSError, AttributeError):
            return
        self._ranks[descriptor] = rank
        self._poll.register(descriptor, select.POLLIN)

    def _forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self.ended.add(self._ranks.pop(descriptor))
        with contextlib.suppress(OSError):
            os.close(descriptor)
