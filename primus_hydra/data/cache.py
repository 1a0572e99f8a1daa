"""The cache on disk: folders that appear whole or not at all, built by one process at a time.

A folder is built beside its place and renamed into it. Processes that want the same folder wait for the one that builds
it. A disk that is full or closed to writing is a HostError.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from primus_hydra.errors import HostError, Problem

Report = Callable[[str], None]
CACHE_VARIABLE = "PRIMUS_CACHE"
"""Names the folder of what is prepared for runs."""
_STORAGE_ERRORS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOLCK, errno.ENOTDIR, errno.EEXIST}
)


def cache_root() -> Path:
    """Return the cache folder: `$PRIMUS_CACHE`, else `primus_hydra` in the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification: a relative path in the variable is to be ignored.
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "primus_hydra"


def build_once(
    folder: Path, *, is_whole: Callable[[Path], bool], build: Callable[[Path], None], report: Report, what: str
) -> bool:
    """Make sure that `folder` is whole; return whether this process built it.

    `build(draft)` fills an empty folder. Whatever it raises passes through and leaves nothing behind; errors of the
    storage become a HostError.
    """
    if is_whole(folder):
        return False
    with storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder, report, what):
            if is_whole(folder):
                return False
            _clear(folder, report, what)
            _build(folder, build)
    return True


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the storage below `folder` into a HostError that says how to get on."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE_ERRORS:
            raise
        what = f"the cache cannot be written: {error.strerror} ({folder}, {_free_gib(folder):.1f} GiB free)"
        raise HostError(
            Problem(what=what, hint="make room, or set PRIMUS_CACHE to a folder on another disk")
        ) from error


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    draft = folder.with_name(f".{folder.name}.draft-{os.getpid()}")
    try:
        draft.mkdir()
        build(draft)
        for path in draft.rglob("*"):
            _sync(path)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _clear(folder: Path, report: Report, what: str) -> None:
    """Remove a damaged folder, and drafts that a killed process left; the caller holds the lock."""
    if folder.exists():
        report(f"{what} in the cache is damaged; building it again ({folder})")
        shutil.rmtree(folder)
    for draft in folder.parent.glob(f".{folder.name}.draft-*"):
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _lock(folder: Path, report: Report, what: str) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when the process ends, however it ends."""
    descriptor = os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process is building {what}; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free_gib(folder: Path) -> float:
    for there in (folder, *folder.parents):
        with suppress(OSError):
            return shutil.disk_usage(there).free / 2**30
    return 0.0
