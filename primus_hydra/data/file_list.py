"""What `data.path` names: files, folders (recursively) and globs become one list of files, in a fixed order.

Order: the entries as the user wrote them, each expanded in sorted order; a file named twice counts once. Inside a
folder, files of other extensions, hidden and empty ones are passed over; named outright they are problems.
"""

from __future__ import annotations

import glob
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from primus_hydra.data.file_readers import FORMATS, format_of
from primus_hydra.errors import Problem

_KEY = "data.path"


@dataclass
class FileList:
    """The files of a corpus, what was passed over inside folders, and what is wrong."""

    files: list[Path] = field(default_factory=list)
    passed_over: int = 0
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, path: str | Path, what: str, hint: str | None = None) -> None:
        """Note a problem with an entry."""
        self.problems.append(Problem(key=_KEY, what=f"{path}: {what}", hint=hint))


def list_files(entries: str | list[str] | None) -> FileList:
    """Expand `data.path`, relative to the current folder; reads no file."""
    found = FileList()
    names = [entries] if isinstance(entries, str) else list(entries or [])
    if not names:
        found.problems.append(
            Problem(key=_KEY, what="needs a file, a folder or a glob", hint="set data.path=my_text.txt")
        )
    for name in names:
        _add_entry(expand_home(name), found)
    found.files = list(dict.fromkeys(found.files))
    return found


def expand_home(name: str) -> str:
    """Replace a leading `~`; unlike Path.expanduser, a user that does not exist is left for the caller to miss."""
    return os.path.expanduser(name)  # noqa: PTH111


def _add_entry(name: str, found: FileList) -> None:
    path = Path(name)
    if not os.path.lexists(path) and glob.has_magic(name):
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - Path.glob refuses absolute patterns
        if not matches:
            found.refuse(name, "nothing matches", f"the current folder is {Path.cwd()}")
        for match in matches:
            _add_path(Path(match), found)
    else:
        _add_path(path, found)


def _add_path(path: Path, found: FileList) -> None:
    mode = _mode(path, found)
    if mode is None:
        return
    if stat.S_ISDIR(mode):
        _add_folder(path, found)
    elif not stat.S_ISREG(mode):
        found.refuse(path, "is neither a file nor a folder")
    elif format_of(path) is None:
        found.refuse(
            path, f"unknown extension {path.suffix!r}", f"known: {', '.join(FORMATS)}; rename plain text to .txt"
        )
    elif path.stat().st_size == 0:
        found.refuse(path, "is empty")
    elif _readable(path, found):
        found.files.append(path.absolute())


def _mode(path: Path, found: FileList) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        near = f"the current folder is {Path.cwd()}" if not path.is_absolute() else None
        found.refuse(path, "does not exist" if not path.is_symlink() else "is a link to nothing", near)
    except OSError as error:
        found.refuse(path, f"cannot be read: {error.strerror}")
    return None


def _readable(path: Path, found: FileList) -> bool:
    if os.access(path, os.R_OK, effective_ids=True):
        return True
    found.refuse(path, "cannot be read: Permission denied", f"look at its rights: ls -l {path}")
    return False


def _add_folder(folder: Path, found: FileList) -> None:
    before = len(found.files), len(found.problems)
    walk = os.walk(folder, onerror=lambda error: found.refuse(error.filename, f"cannot be read: {error.strerror}"))
    files: list[Path] = []
    for root, folders, names in walk:
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(root, name) for name in names if not name.startswith(".")]
    for path in sorted(files, key=Path.as_posix):
        if format_of(path) is None or (path.is_file() and path.stat().st_size == 0):
            found.passed_over += 1
        else:
            _add_path(path, found)
    if (len(found.files), len(found.problems)) == before:
        found.refuse(folder, "holds no text", f"looked for {', '.join(FORMATS)} in it and its folders")
