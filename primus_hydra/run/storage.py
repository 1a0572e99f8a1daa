"""What the file system of a run cannot do, said as an error of the machine instead of a traceback."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from primus_hydra.errors import HostError, Problem

_HINTS = {
    errno.ENOSPC: "free some space, or choose another run.dir; the same command goes on from the last checkpoint",
    errno.EDQUOT: "free some of your quota, or choose another run.dir; the same command then goes on",
}
_OTHER = "choose a folder that you may write to with run.dir"


@contextmanager
def run_storage(root: Path) -> Iterator[None]:
    """Turn an OSError about a run's own files, or a full or read-only disk, into a HostError that names the run."""
    try:
        yield
    except OSError as error:
        if not _is_about(error, root):
            raise
        what = f"the run directory cannot be written: {error.strerror or error}"
        hint = _HINTS.get(error.errno or 0, _OTHER)
        raise HostError(Problem(key="run.dir", what=what, where=str(error.filename or root), hint=hint)) from error


def _is_about(error: OSError, root: Path) -> bool:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return True
    named = Path(str(error.filename)) if error.filename else None
    return named is not None and (named == root or root in named.parents or named in root.parents)
