"""Keeps two starts of one job out of one run, also where the older one does not know that it is over.

Slurm starts a job again when it has lost a node, which may be cut off and at work. The lock of the run keeps the newer
start out; it leaves word that it waits, and the older one, which reads it as soon as it sees the folder again, ends by
itself. Where the file system gave the lock away meanwhile, the older one leaves without touching anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from primus_hydra.run.lock import LockHolder, read_holder, waiting_for
from primus_hydra.run.paths import RunPaths

LOOK_S = 2.0
"""How often the lock's file is read."""


class Fence:
    """Call it often: it returns why this start of the job has to end, None while it may go on.

    `leave` is called, and must not return, once the run is another's: nothing may be written any more.
    """

    def __init__(self, paths: RunPaths, run_id: str, leave: Callable[[str], None]) -> None:
        self._paths = paths
        self._run_id = run_id
        self._leave = leave
        self._looked = 0.0
        self._lost: str | None = None

    def __call__(self) -> str | None:
        """Look now and then."""
        now = time.monotonic()
        if self._lost is None and now - self._looked >= LOOK_S:
            self._looked = now
            self._lost = self._look()
        return self._lost

    @property
    def closed(self) -> bool:
        """Whether this start has to end."""
        return self._lost is not None

    def leave_if_taken(self) -> None:
        """Leave for good if somebody else holds the run by now; after the ranks' end, before anything is written."""
        holder = read_holder(self._paths.lock)
        if holder is not None and holder.job != self._run_id:
            self._leave(f"the run was taken over: {holder}")

    def _look(self) -> str | None:
        holder = read_holder(self._paths.lock)
        if holder is not None and holder.job != self._run_id:
            return f"the run was taken over: {holder}"
        waiting = read_holder(waiting_for(self._paths.lock))
        if waiting is not None and self._is_later(waiting):
            return f"Slurm has started the job again: {waiting}"
        return None

    def _is_later(self, other: LockHolder) -> bool:
        job, _, start = self._run_id.rpartition(".")
        other_job, _, other_start = (other.job or "").rpartition(".")
        return other_job == job and other_start.isdecimal() and int(other_start) > int(start)
