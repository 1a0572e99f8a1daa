"""The manifest that makes a checkpoint complete: which files it has, how long they are, and what they hold.

It is written last, so a checkpoint without one was cut short. It cannot see a flipped bit in the middle of a large
file: those are compared by size and by both ends, since reading terabytes at every start would cost more than it saves.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from primus_hydra.errors import Problem
from primus_hydra.run.atomic import read_json, sync_folder, write_json

MANIFEST = "primus_checkpoint.json"
FORMAT = 1
WHOLE_LIMIT_BYTES = 16 * 1024**2
"""Files up to this size are compared byte for byte, larger ones by size and both ends."""
END_BYTES = 1024**2


def write_manifest(folder: Path, step: int, extra: Mapping[str, object] | None = None) -> None:
    """Declare the checkpoint in `folder` complete; every file of it must be written by now.

    Brings the files to the disk first, so that the manifest never survives a power cut without them. Raises
    ValueError if there is no file at all, and OSError.
    """
    files = _files_of(folder)
    if not files:
        raise ValueError(f"a checkpoint without files: {folder}")
    for name in files:
        _sync(folder / name)
    sync_folder(folder)
    write_json(
        folder / MANIFEST,
        {
            "format": FORMAT,
            "step": step,
            "written_at": time.time(),
            "files": {name: _describe(folder / name) for name in files},
            "extra": dict(extra or {}),
        },
    )


def read_manifest(folder: Path) -> dict[str, object] | None:
    """Return the manifest of a checkpoint, or None if there is none that can be read."""
    return read_json(folder / MANIFEST)


def verify(folder: Path) -> Problem | None:
    """Say why the checkpoint in `folder` is not complete, or None if it is; files beyond the manifest are ignored."""
    if not (folder / MANIFEST).exists():
        return _problem(folder, f"it has no {MANIFEST}, so its save did not finish")
    manifest = read_manifest(folder)
    if manifest is not None and folder.name != f"step-{manifest.get('step')}":
        return _problem(folder, f"its {MANIFEST} belongs to step {manifest.get('step')}")
    fault = damage(folder)
    return None if fault is None else _problem(folder, fault)


def damage(folder: Path) -> str | None:
    """Say which file is not as it was saved, or None; the folder may have any name, and files beyond the manifest."""
    manifest = read_manifest(folder)
    files = manifest.get("files") if manifest else None
    if manifest is None or not isinstance(files, dict) or manifest.get("format") != FORMAT:
        return f"its {MANIFEST} cannot be read"
    faults = ((name, _fault(folder / name, wanted)) for name, wanted in files.items())
    return next((f"{name} {fault}" for name, fault in faults if fault), None)


def _fault(path: Path, wanted: object) -> str | None:
    try:
        size = path.stat().st_size
        if not isinstance(wanted, dict) or size != wanted.get("size"):
            return f"has {size} bytes instead of {wanted.get('size') if isinstance(wanted, dict) else '?'}"
        return None if _digest(path, size) == wanted.get("blake2b") else "has other content than when it was saved"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _files_of(folder: Path) -> list[str]:
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.lstrip(".").startswith(MANIFEST))


def _describe(path: Path) -> dict[str, object]:
    size = path.stat().st_size
    return {"size": size, "blake2b": _digest(path, size)}


def _digest(path: Path, size: int) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        if size <= WHOLE_LIMIT_BYTES:
            digest.update(file.read())
        else:
            digest.update(file.read(END_BYTES))
            file.seek(size - END_BYTES)
            digest.update(file.read(END_BYTES))
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _problem(folder: Path, what: str) -> Problem:
    return Problem(what=f"checkpoint {folder.name} is not complete: {what}", where=str(folder))
