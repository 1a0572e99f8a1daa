"""Python's own fork server, prepared for ranks: started before torch is imported here, so that both imports overlap."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

from primus_hydra.runtime.preload_report import SPEC_VARIABLE, report_path, unfit_reason
from primus_hydra.runtime.signals import holding_stops

_PRELOADED_MODULE = "primus_hydra.runtime.preloading"
_QUIET_ALLOCATOR = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""pyarrow's allocator starts a thread when it is imported, and a fork would lose it."""


@dataclass(frozen=True)
class ForkServer:
    """The server of one attempt; it belongs to this process and dies with it."""

    spec_path: Path
    pid: int

    @classmethod
    def start(cls, spec_path: Path) -> ForkServer:
        """Start it; returns at once. What ranks find in their environment must be in this process's by now."""
        report_path(spec_path).unlink(missing_ok=True)
        os.environ.update({SPEC_VARIABLE: str(spec_path), **_QUIET_ALLOCATOR})
        multiprocessing.set_forkserver_preload([_PRELOADED_MODULE])
        resource_tracker.ensure_running()  # it would let signals through again
        with holding_stops():
            forkserver.ensure_running()
        return cls(spec_path, forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]

    def unfit(self, timeout_s: float) -> str | None:
        """Wait until it is prepared; return why ranks may not be forked from it, None if they may."""
        return unfit_reason(self.spec_path, alive=self._alive, timeout_s=timeout_s)

    def stop(self) -> None:
        """End it."""
        forkserver._forkserver._stop()  # type: ignore[attr-defined]

    def _alive(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:  # collected already
            return False
