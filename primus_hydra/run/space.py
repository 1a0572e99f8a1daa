"""Whether the disk has room for what is about to be written, and what an error says about a disk that had none.

A file system that does not know its own size (some network and FUSE mounts) is taken to have room. A quota that it does
not tell of shows only as an error while something is written.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from primus_hydra.errors import Problem
from primus_hydra.run.manifest import MANIFEST, read_manifest

GIB = 1024**3
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the errors of a disk, or a quota, that is used up."""
_SHORT_WRITE = ("unexpected pos ", "PytorchStreamWriter failed writing")
"""Of torch's writer of tensors (caffe2/serialize/inline_container.cc)."""
WAYS_OUT = (
    "free some space (old damaged-* folders too), lower checkpoint.keep, save less often with checkpoint.every, or put "
    "the runs elsewhere with run.dir=FOLDER; checkpoint.leave_free_gib=null does not look"
)


def free_bytes(folder: Path) -> int | None:
    """Return how much may still be written to the file system of `folder` (which need not exist yet); raises OSError.

    None where the file system does not say.
    """
    usage = shutil.disk_usage(_nearest_existing(folder.absolute()))
    return usage.free if usage.total > 0 else None


def space_problem(folder: Path, needed_bytes: int, why: str = "") -> Problem | None:
    """Say that the file system of `folder` has less than `needed_bytes` free, or None; `why` tells what they are for.

    Raises OSError.
    """
    free = free_bytes(folder)
    if free is None or free >= needed_bytes:
        return None
    return Problem(key="run.dir", what=lacking(needed_bytes, free) + why, where=str(folder), hint=WAYS_OUT)


def lacking(needed_bytes: int, free: int) -> str:
    """Return both amounts in words."""
    return f"{size_text(needed_bytes)} are needed and {size_text(free)} are free"


def checkpoint_bytes(folder: Path) -> int | None:
    """Return the size of a complete checkpoint, by its manifest; None where there is none that can be read."""
    files = (read_manifest(folder) or {}).get("files")
    if not isinstance(files, Mapping):
        return None
    sizes = [entry.get("size") for entry in files.values() if isinstance(entry, Mapping)]
    return sum(size for size in sizes if isinstance(size, int)) + _file_bytes(folder / MANIFEST)


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder; one that vanishes meanwhile has none."""
    return sum(_file_bytes(path) for path in folder.rglob("*"))


def ran_out(error: BaseException) -> bool:
    """Whether an error, or one that it came from, says that a disk or a quota is used up.

    torch raises another error over the one of the file, and gathers those of all ranks in `failures`, without what they
    came from if they are another rank's. Then its words have to do: fewer bytes were taken than were given.
    """
    chain = list(_chain(error, set()))
    numbers = [found.errno for found in chain if isinstance(found, OSError)]
    if numbers:
        return any(number in FULL for number in numbers)
    return any(word in str(found) for found in chain for word in _SHORT_WRITE)


def size_text(amount: int) -> str:
    """Return an amount of bytes in words."""
    return f"{amount / GIB:.2f} GiB" if amount >= GIB / 100 else f"{amount / 1024**2:.2f} MiB"


def _chain(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    failures = getattr(error, "failures", None)
    gathered = [entry[0] for entry in failures.values()] if isinstance(failures, Mapping) else []
    for other in (error.__cause__, error.__context__, *gathered):
        yield from _chain(other, seen)


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _nearest_existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())
