"""Files that are either the old version or the new one, never half of it.

The text goes to a temporary file beside the target, reaches the disk, and takes the target's name in one step.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content`; creates missing folders. Raises OSError and then leaves the old file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        _write_through(temporary, content)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, data: object) -> None:
    """Replace `path` by `data` as strict, readable JSON; raises ValueError for NaN and infinities."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, object] | None:
    """Return the object in `path`, or None if the file is absent, torn, or holds something else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def sync_folder(folder: Path) -> None:
    """Make a new name in `folder` survive a power cut; file systems that cannot do this are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_through(path: Path, content: bytes) -> None:
    # Opened by mode rather than by tempfile, whose files only their owner may read: runs are shared by teams.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
