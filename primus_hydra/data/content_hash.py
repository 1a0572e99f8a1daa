"""Hashes of content: files by their bytes, settings by their text. Large files are remembered by size and time."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from primus_hydra.errors import Problem, UserError

_DIGEST_BYTES: Final = 16
_REMEMBER_FROM: Final = 16 << 20
# A file written a moment ago may change again within the resolution of its time stamp.
_SETTLED_NS: Final = 2_000_000_000


@dataclass(frozen=True, kw_only=True)
class FileHash:
    """A file's bytes in short."""

    path: Path
    size: int
    digest: str


def hash_text(*parts: str) -> str:
    """Return the hash of a sequence of texts; the borders between them count."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def hash_file(path: Path) -> str:
    """Return the hash of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()


def hash_files(paths: Iterable[Path], *, memo: Path) -> list[FileHash]:
    """Hash files in order; `memo` remembers large ones, so that a second run does not read them again.

    Raises UserError that names every file which cannot be read.
    """
    known = _load(memo)
    before = dict(known)
    hashes: list[FileHash] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            hashes.append(_hash_known(path, known))
        except OSError as error:
            problems.append(Problem(key="data.path", what=f"{path}: cannot be read: {error.strerror}"))
    if problems:
        raise UserError(*problems)
    if known != before:
        _save(memo, known)
    return hashes


def _hash_known(path: Path, known: dict[str, str]) -> FileHash:
    status = path.stat()
    if status.st_size < _REMEMBER_FROM or time.time_ns() - status.st_mtime_ns < _SETTLED_NS:
        return FileHash(path=path, size=status.st_size, digest=hash_file(path))
    key = f"{status.st_size} {status.st_mtime_ns} {path}"
    if key not in known:
        known[key] = hash_file(path)
    return FileHash(path=path, size=status.st_size, digest=known[key])


def _load(memo: Path) -> dict[str, str]:
    try:
        known = json.loads(memo.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _save(memo: Path, known: dict[str, str]) -> None:
    """Replace the memo in one go; of two writers the last wins; one that cannot be written costs only time."""
    draft = memo.with_name(f".{memo.name}.{os.getpid()}")
    with suppress(OSError):
        memo.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(known))
        draft.replace(memo)
