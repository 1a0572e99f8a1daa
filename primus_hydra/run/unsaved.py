"""The note of a run that goes on without saving: since when and why, for those who look at it.

Written by rank 0 and read by the launcher and `task=runs`; it goes with the first save that succeeds again.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path

from primus_hydra.run.atomic import read_json, write_json


@dataclass(frozen=True, kw_only=True)
class Unsaved:
    """Saves that were skipped: the first and the latest step, why, and the step of the newest complete checkpoint."""

    since: int
    latest: int
    why: str
    complete: int | None

    def describe(self) -> str:
        """Return it as a sentence."""
        steps = f"step {self.since}" if self.since == self.latest else f"steps {self.since} to {self.latest}"
        newest = "there is none yet" if self.complete is None else f"the newest one is at step {self.complete}"
        return f"no checkpoint at {steps}: {self.why}; {newest}"


def write_unsaved(path: Path, note: Unsaved) -> None:
    """Leave the note if the disk takes it."""
    with contextlib.suppress(OSError):
        write_json(path, asdict(note))


def read_unsaved(path: Path) -> Unsaved | None:
    """Return the note, None while everything is saved."""
    data = read_json(path)
    try:
        return None if data is None else Unsaved(**data)  # type: ignore[arg-type]
    except TypeError:
        return None
