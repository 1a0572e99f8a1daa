"""What a conversion has done so far: one entry for each whole file, kept beside the files themselves.

A conversion that broke off is gone on with: a file counts if its size and its checksum are those of its entry.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Final

from primus_hydra.errors import Problem, UserError
from primus_hydra.run.atomic import read_json, sync_folder, write_json
from primus_hydra.weights.request import JOURNAL

_FORMAT: Final = 1
_BLOCK: Final = 1 << 24
_UNFINISHED: Final = ".unfinished"


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A whole file; `contents` is what its writer wants to remember of it."""

    size: int
    blake2b: str
    contents: Any = None


class Sink(RawIOBase):
    """A file that counts and hashes what is written into it; it is written from front to back."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.blake2b(digest_size=16)
        self.size = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        self._stream.write(view)
        self._digest.update(view)
        self.size += len(view)
        return len(view)

    @property
    def digest(self) -> str:
        """The checksum of what was written."""
        return self._digest.hexdigest()


@dataclass(kw_only=True)
class Journal:
    """The conversion in `folder`; `task` is everything that decides its bytes."""

    folder: Path
    task: Mapping[str, Any]
    files: dict[str, FileEntry] = field(default_factory=dict)
    reused: int = 0

    @classmethod
    def open(cls, folder: Path, task: Mapping[str, Any]) -> Journal:
        """Begin in a new folder, or go on in one; raises UserError for the folder of another conversion."""
        folder.mkdir(parents=True, exist_ok=True)
        before = read_json(folder / JOURNAL)
        if before is None and any(folder.iterdir()):
            raise _foreign(folder, "it holds files of something else")
        if before is not None and before.get("task") != dict(task):
            raise _foreign(folder, "it is of another conversion, or the source has changed")
        files = before.get("files") if before else None
        known = {name: FileEntry(**entry) for name, entry in files.items()} if isinstance(files, dict) else {}
        journal = cls(folder=folder, task=task, files=known)
        journal._write()
        return journal

    def done(self, name: str) -> FileEntry | None:
        """Return the entry of a file that needs not be written again; reads the whole file."""
        entry = self.files.get(name)
        if entry is None or not _is(self.folder / name, entry):
            return None
        self.reused += 1
        return entry

    @contextmanager
    def writing(self, name: str) -> Iterator[tuple[Sink, dict[str, Any]]]:
        """Give the sink of a file and a place for what is to be remembered; at the end the file counts."""
        unfinished = self.folder / f"{name}{_UNFINISHED}"
        contents: dict[str, Any] = {}
        with unfinished.open("wb") as stream:
            sink = Sink(stream)
            yield sink, contents
            stream.flush()
            _sync(stream)
        unfinished.rename(self.folder / name)
        sync_folder(self.folder)
        self.files[name] = FileEntry(size=sink.size, blake2b=sink.digest, contents=contents)
        self._write()

    def _write(self) -> None:
        files = {name: vars(entry) for name, entry in self.files.items()}
        write_json(self.folder / JOURNAL, {"format": _FORMAT, "task": dict(self.task), "files": files})


def is_finished(folder: Path, task: Mapping[str, Any]) -> bool:
    """Whether a folder is the whole outcome of this very conversion; looks at the sizes of its files."""
    before = read_json(folder / JOURNAL)
    if before is None or before.get("task") != dict(task):
        return False
    files = before.get("files")
    if not isinstance(files, dict) or not files:
        return False
    return all((folder / name).is_file() and (folder / name).stat().st_size == e["size"] for name, e in files.items())


def _is(path: Path, entry: FileEntry) -> bool:
    try:
        if path.stat().st_size != entry.size:
            return False
        digest = hashlib.blake2b(digest_size=16)
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except OSError:
        return False
    return digest.hexdigest() == entry.blake2b


def _sync(stream: BinaryIO) -> None:
    os.fsync(stream.fileno())


def _foreign(folder: Path, why: str) -> UserError:
    what = f"a conversion cannot be gone on with: {why}"
    return UserError(Problem(key="task.output", what=what, where=str(folder), hint="delete it, or name another output"))
