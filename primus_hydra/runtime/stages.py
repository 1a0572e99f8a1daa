"""Which stage of a start was reached when: a line for each in this node's memory, by launcher, agent, server and ranks.

The launcher gathers them into the attempt's `times.json`; that is where the seconds of a slow start are found. Times
are of CLOCK_MONOTONIC, which all processes of a node share. A stage that cannot be noted is no reason to fail.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "stages-"


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A process (`launcher`, `agent`, `server`, `rank-N`) reached a stage in a restart at a time, in seconds."""

    who: str
    restart: int
    stage: str
    at_s: float


class Stages:
    """The stages of one process; `restart` is the start that they belong to, 0 for the first."""

    def __init__(self, folder: Path, who: str, restart: int = 0) -> None:
        self._path = folder / f"{_PREFIX}{who}"
        self.restart = restart

    def reached(self, stage: str) -> None:
        """Note that the process is at `stage` now; never raises OSError."""
        line = f"{self.restart} {time.monotonic()} {stage}\n".encode()
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)


def read_stages(folder: Path) -> list[Reached]:
    """Return all stages that the processes of this node have noted, in the order of time."""
    found: list[Reached] = []
    for path in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lines = path.read_text(encoding="utf-8").splitlines()
            found += filter(None, (_parse(path.name.removeprefix(_PREFIX), line) for line in lines))
    return sorted(found, key=lambda reached: reached.at_s)


def _parse(who: str, line: str) -> Reached | None:
    try:
        restart, at_s, stage = line.split(" ", 2)
        return Reached(who=who, restart=int(restart), stage=stage, at_s=float(at_s))
    except ValueError:  # the last line of a process that was killed while it wrote
        return None
