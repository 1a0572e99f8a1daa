"""Whether the disk has room for what is about to be written."""

from __future__ import annotations

import shutil
from pathlib import Path

from primus_hydra.errors import Problem

_GIB = 1024**3


def space_problem(folder: Path, needed_bytes: int) -> Problem | None:
    """Say that the file system of `folder` (which need not exist yet) has less than `needed_bytes` free, or None."""
    existing = _nearest_existing(folder.absolute())
    free = shutil.disk_usage(existing).free
    if free >= needed_bytes:
        return None
    return Problem(
        key="run.dir",
        what=f"{_size(needed_bytes)} are needed and {_size(free)} are free",
        where=str(folder),
        hint="free some space, lower checkpoint.keep, or put the runs elsewhere with run.dir=FOLDER",
    )


def _nearest_existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _size(amount: int) -> str:
    return f"{amount / _GIB:.2f} GiB" if amount >= _GIB / 100 else f"{amount / 1024**2:.2f} MiB"
