"""The code of a job as it was when the job was submitted: a copy, so that later edits reach no job that waits or runs.

Copies are named by their content, so that a sweep of one tree makes one copy; submitters that race for it agree. A copy
appears whole or not at all, and is read-only. Refuses what is no project: a home folder, the root, a repository without
files, a tree that is too large, files that cannot be read or do not hold still.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from primus_hydra.errors import HostError, Problem, UserError, raise_all
from primus_hydra.run.atomic import read_json, write_json, write_text
from primus_hydra.run.code_files import GitError, GitFacts, git_facts, git_files, is_bare, is_in_git, plain_files

KEY = "launch.snapshot"
MOST_FILES = 20_000
MOST_BYTES = 256 * 2**20
LONGEST_PATCH = 2**20
"""Characters of a patch that the note holds; `changes.patch` holds all."""
_CODE, _NOTE, _PATCH = "code", "snapshot.json", "changes.patch"
_OLD_DRAFT_S = 24 * 3600.0
_TRIES = 3
_CHUNK = 2**20
_OFF = f"{KEY}=false starts jobs on the files themselves"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One copy of one tree: `folder` holds the copy, `source` is what it is a copy of, `digest` names its content.

    `git` is None where there is no repository, or where `why_not_git` says what kept git from telling. `skipped` are
    neither files nor links; `outside` are links that lead out of the copy: what they point to may change.
    """

    source: str
    folder: str
    digest: str
    files: int
    size: int
    git: GitFacts | None = None
    why_not_git: str | None = None
    skipped: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def code(self) -> Path:
        """The copy."""
        return Path(self.folder) / _CODE

    def note(self) -> dict[str, Any]:
        """Return what to keep of it with a job, as plain data for JSON."""
        said = asdict(self)
        if self.git is not None:
            cut = len(self.git.changes) > LONGEST_PATCH
            said["git"] |= {"dirty": self.git.dirty, "changes": self.git.changes[:LONGEST_PATCH], "cut": cut}
        return said


class _MovedError(Exception):
    """A file was written, or went away, while it was read."""


@dataclass(frozen=True)
class _Entry:
    """A file or a link of the tree; `target` is a link's."""

    name: str
    size: int
    executable: bool = False
    target: str | None = None


def python_path(*snapshots: Snapshot) -> tuple[Path, ...]:
    """Return what the job puts in front of its import path; it must not have its working folder there (`python -P`)."""
    return tuple(snapshot.code for snapshot in snapshots)


def take_snapshot(folder: Path, into: Path, *, without: Sequence[Path] = ()) -> Snapshot:
    """Copy the code in `folder` to a folder below `into` that is named by the content; one that is there is used.

    `without` are folders to leave out, as that of the runs; `into` is left out anyway. Raises UserError for a tree
    that cannot be taken (see the module), with every file that stands against it, and HostError if it cannot be
    written.
    """
    source = folder.expanduser().resolve()
    _refuse_no_project(source)
    moved = ""
    for _ in range(_TRIES):
        try:
            return _take(source, into.expanduser().absolute(), [*without, into])
        except _MovedError as error:
            moved = str(error)
    what = f"{moved} in {source} is written to all the time, and cannot be copied"
    raise UserError(Problem(key=KEY, what=what, hint=f"name it in .gitignore if it is no code; {_OFF}"))


def _take(source: Path, into: Path, without: Sequence[Path]) -> Snapshot:
    listed, git, why_not = _listing(source)
    apart = [path.expanduser().resolve() for path in without]
    entries, skipped = _examine(source, (name for name in listed if not _is_below(source / name, apart)))
    _refuse_too_much(source, entries)
    found = Snapshot(
        source=str(source),
        folder="",
        digest="",
        files=len(entries),
        size=sum(entry.size for entry in entries),
        git=git,
        why_not_git=why_not,
        skipped=tuple(skipped),
        outside=tuple(_printable(entry.name) for entry in entries if _leads_out(source, entry)),
    )
    with _storage(into):
        return _keep(found, source, entries, into)


def _refuse_no_project(source: Path) -> None:
    what = None
    if not source.is_dir():
        what = f"there is no folder {source}"
    elif source in (Path("/"), Path.home().resolve(), *map(Path, ("/home", "/root", "/tmp", "/usr", "/opt", "/etc"))):
        what = f"{source} is no project, and is not copied"
    elif is_bare(source):
        what = f"{source} is the inside of a repository, and has no files of its own"
    if what is not None:
        raise UserError(Problem(key=KEY, what=what, hint=f"keep the code in a folder of its own, or {_OFF}"))


def _listing(source: Path) -> tuple[list[str], GitFacts | None, str | None]:
    if not is_in_git(source):
        return sorted(plain_files(source)), None, None
    try:
        return sorted(git_files(source)), git_facts(source), None
    except GitError as error:
        return sorted(plain_files(source)), None, str(error)


def _examine(source: Path, names: Iterable[str]) -> tuple[list[_Entry], list[str]]:
    """Look at every file; raises UserError that names all that cannot be read."""
    entries, skipped, problems = [], [], []
    for name in names:
        path = source / name
        try:
            facts = path.lstat()
        except FileNotFoundError:
            continue  # gone since it was listed
        except OSError as error:
            problems.append(_unreadable(path, error.strerror))
            continue
        if stat.S_ISLNK(facts.st_mode):
            entries.append(_Entry(name=name, size=0, target=_target(source, path)))
        elif not stat.S_ISREG(facts.st_mode):
            skipped.append(_printable(name))
        elif not os.access(path, os.R_OK):
            problems.append(_unreadable(path, "permission denied"))
        else:
            entries.append(_Entry(name=name, size=facts.st_size, executable=bool(facts.st_mode & stat.S_IXUSR)))
    raise_all(problems)
    return entries, skipped


def _target(source: Path, link: Path) -> str:
    """Return where a link should lead in the copy: as it does, unless a relative path leads out of the tree."""
    target = os.readlink(link)  # noqa: PTH115 (a Path would spell it anew)
    absolute = os.path.normpath(link.parent / target)
    return target if Path(target).is_absolute() or _is_below(Path(absolute), [source]) else absolute


def _leads_out(source: Path, entry: _Entry) -> bool:
    if entry.target is None or Path(entry.target).is_absolute():
        return entry.target is not None
    return not _is_below(Path(os.path.normpath((source / entry.name).parent / entry.target)), [source])


def _refuse_too_much(source: Path, entries: Sequence[_Entry]) -> None:
    size = sum(entry.size for entry in entries)
    if len(entries) <= MOST_FILES and size <= MOST_BYTES:
        return
    largest = sorted(entries, key=lambda entry: -entry.size)[:3]
    named = ", ".join(f"{_printable(entry.name)} ({entry.size / 2**20:.1f} MiB)" for entry in largest)
    what = (
        f"{source} has {len(entries):,} files with {size / 2**20:,.0f} MiB, more than code has "
        f"({MOST_FILES:,} files, {MOST_BYTES // 2**20} MiB); the largest are {named}"
    )
    raise UserError(Problem(key=KEY, what=what, hint=f"name what is no code in .gitignore; {_OFF}"))


def _keep(found: Snapshot, source: Path, entries: Sequence[_Entry], into: Path) -> Snapshot:
    """Find the copy of this content, or make it."""
    digest, entries = _digest(entries, lambda entry: _read(source / entry.name))
    if not _is_whole(into / digest, entries):
        into.mkdir(parents=True, exist_ok=True)
        _clear(into)
        digest = _copy(found, source, entries, into)
    return replace(found, folder=str(into / digest), digest=digest)


def _copy(found: Snapshot, source: Path, entries: Sequence[_Entry], into: Path) -> str:
    """Copy, and return the digest of what was copied: a file that was edited meanwhile is new as a whole."""
    draft = into / f".draft-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    code = draft / _CODE
    try:
        code.mkdir(parents=True)
        for entry in entries:
            (code / entry.name).parent.mkdir(parents=True, exist_ok=True)
            if entry.target is not None:
                (code / entry.name).symlink_to(entry.target)
        digest, copied = _digest(entries, lambda entry: _copy_file(source / entry.name, code / entry.name, entry))
        named = replace(found, folder=str(into / digest), digest=digest)
        if named.git is not None and named.git.changes:
            write_text(draft / _PATCH, named.git.changes)
        write_json(draft / _NOTE, named.note())
        _take_name(draft, into / digest, copied)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return digest


def _take_name(draft: Path, final: Path, entries: Sequence[_Entry]) -> None:
    for _ in range(_TRIES):
        try:
            draft.rename(final)
        except OSError:
            if _is_whole(final, entries):
                return  # another submitter was faster
            with contextlib.suppress(OSError):  # what is there was damaged: it makes room, and is cleared later
                final.rename(final.with_name(f".draft-damaged-{uuid.uuid4().hex[:8]}"))
        else:
            return
    raise UserError(Problem(key=KEY, what=f"{final} cannot be replaced", hint="remove it by hand"))


def _is_whole(folder: Path, entries: Sequence[_Entry]) -> bool:
    """Whether a copy still has all files in their sizes."""
    if read_json(folder / _NOTE) is None:
        return False
    code = folder / _CODE
    try:
        return all(
            os.readlink(code / entry.name) == entry.target  # noqa: PTH115
            if entry.target is not None
            else (code / entry.name).lstat().st_size == entry.size
            for entry in entries
        )
    except OSError:
        return False


def _digest(entries: Sequence[_Entry], content: Callable[[_Entry], tuple[bytes, int]]) -> tuple[str, list[_Entry]]:
    """Return the digest of all entries, and the entries in the sizes that were read."""
    total, seen = hashlib.sha256(), []
    for entry in entries:
        kind = b"link" if entry.target is not None else b"program" if entry.executable else b"file"
        held, size = content(entry) if entry.target is None else (os.fsencode(entry.target), 0)
        seen.append(replace(entry, size=size))
        for part in (kind, os.fsencode(entry.name), held):
            total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()[:16], seen


def _read(path: Path, copy: int | None = None) -> tuple[bytes, int]:
    """Return the hash and the size of a file, written to the descriptor `copy` on the way; raises _MovedError."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            while chunk := file.read(_CHUNK):
                found.update(chunk)
                if copy is not None:
                    os.write(copy, chunk)
            after, size = os.fstat(file.fileno()), file.tell()
    except FileNotFoundError:
        raise _MovedError(_printable(path.name)) from None
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or size != after.st_size:
        raise _MovedError(_printable(path.name))
    return found.digest(), size


def _copy_file(source: Path, target: Path, entry: _Entry) -> tuple[bytes, int]:
    copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        read = _read(source, copy)
        os.fchmod(copy, 0o555 if entry.executable else 0o444)
    finally:
        os.close(copy)
    return read


def _clear(into: Path) -> None:
    """Remove what killed submitters left, long enough ago that none of them can be at work."""
    for draft in into.glob(".draft-*"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > _OLD_DRAFT_S:
                shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def _storage(into: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"the code cannot be copied to {into}: {error.strerror or error}"
        raise HostError(Problem(key=KEY, what=what, hint="make room, or choose another run.dir")) from error


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _unreadable(path: Path, why: str | None) -> Problem:
    what = f"{_printable(str(path))} cannot be copied: {why}"
    return Problem(key=KEY, what=what, hint=f"make it readable, or name it in .gitignore; {_OFF}")


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
