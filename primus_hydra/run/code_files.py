"""Which files of a folder are its code: what git tracks or would add, or everything that is not a program's leavings.

In a git tree: tracked and untracked files as they are now, without ignored ones, those of submodules and of
repositories inside it too. Elsewhere, and where git cannot tell: all files but folders that programs make. Writes
nothing; a repository's own settings start no monitor, pager or diff program (its filters, as those of LFS, run).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

GIT_TIMEOUT_S = 120
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "diff.external=", "-c", "core.pager=cat")
_LEAVINGS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".bzr",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
        ".venv",
        "venv",
        "node_modules",
        ".ipynb_checkpoints",
    }
)
"""Folders that are no code where no .gitignore says so."""


class GitError(Exception):
    """git is not here, or cannot read a repository; the text says which."""


@dataclass(frozen=True, kw_only=True)
class GitFacts:
    """What git says of a tree: None for what a tree without commits does not have. `changes` is a patch over it."""

    commit: str | None
    branch: str | None
    changes: str
    untracked: tuple[str, ...]
    submodules: tuple[str, ...]

    @property
    def dirty(self) -> bool:
        """Whether the files are not those of the commit."""
        return self.commit is None or bool(self.changes or self.untracked)


def git_files(folder: Path) -> Iterator[str]:
    """Yield the files of a git tree below `folder`, relative to it; raises GitError."""
    for name in _listed(folder, "--cached", "--others", "--exclude-standard"):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            if _is_repository(path):  # of its own: a submodule, or one that lies in this one
                yield from (f"{name.rstrip('/')}/{inside}" for inside in git_files(path))
        elif os.path.lexists(path):  # one that is deleted and not committed yet is listed too
            yield name


def plain_files(folder: Path) -> Iterator[str]:
    """Yield all files below `folder` but what programs leave; a link is a file, whatever it points to."""
    for place, folders, files in os.walk(folder):
        linked = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in _LEAVINGS and name not in linked)
        for name in (*files, *linked):
            if not name.endswith(".pyc"):
                yield os.path.relpath(Path(place, name), folder)


def git_facts(folder: Path) -> GitFacts:
    """Return what git says of the tree below `folder`; raises GitError."""
    try:
        commit: str | None = _git(folder, "rev-parse", "--verify", "HEAD").decode().strip()
    except GitError:
        commit = None  # nothing is committed yet
    branch = _git(folder, "branch", "--show-current").decode(errors="replace").strip() or None
    patch = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD", "--", ".") if commit else b""
    staged = [entry.split("\t", 1) for entry in _listed(folder, "--stage")]
    links = [(words[0].split()[1], words[1]) for words in staged if words[0].startswith("160000")]
    return GitFacts(
        commit=commit,
        branch=branch,
        changes=patch.decode("utf-8", errors="replace"),
        untracked=tuple(_printable(name) for name in _listed(folder, "--others", "--exclude-standard")),
        submodules=tuple(f"{_printable(name)} {commit}" for commit, name in links),
    )


def is_in_git(folder: Path) -> bool:
    """Whether a folder looks as if it were in a repository; git itself may say otherwise."""
    return any((place / ".git").exists() for place in (folder, *folder.parents))


def is_bare(folder: Path) -> bool:
    """Whether a folder is a repository without files of its own, or the inside of a `.git`."""
    parts = ("HEAD", "objects", "refs")
    return not (folder / ".git").exists() and all((folder / part).exists() for part in parts)


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists()


def _listed(folder: Path, *flags: str) -> list[str]:
    output = _git(folder, "ls-files", "-z", *flags)
    return sorted({os.fsdecode(name) for name in output.split(b"\0") if name})


def _git(folder: Path, *words: str) -> bytes:
    # What a hook or another tool has told git about some other repository does not hold here.
    told = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    argv: Sequence[str] = ["git", "-C", str(folder), *_QUIET, *words]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            env={**told, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git {words[0]} took longer than {GIT_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(f"git {words[0]}: {said[0] if said else f'exit code {done.returncode}'}")
    return done.stdout


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
