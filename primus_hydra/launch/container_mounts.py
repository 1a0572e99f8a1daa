"""What a container sees of this machine: what the user mounts, and what the job cannot do without.

What the job needs keeps its path, so that a path means the same on both sides. Refuses paths that the engines' own
notation cannot hold, and two things in one place. Looks at no file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.config.init_from import hf_folder
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem

KEY = "launch.container.mounts"
_MODES = {"ro": True, "rw": False}
_WILD = "*?["


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A file or folder of this machine, and where the container has it."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def same(cls, path: Path | str, *, read_only: bool) -> Mount:
        """Mount something under its own path."""
        return cls(source=str(path), target=str(path), read_only=read_only)

    def covers(self, other: Mount) -> bool:
        """Whether another mount adds nothing to this one: the same thing in the same place, with no more rights."""
        if self.read_only and not other.read_only:
            return False
        inside = _below(other.target, self.target)
        return inside is not None and inside == _below(other.source, self.source)


def parse_mounts(texts: Sequence[str]) -> tuple[list[Mount], list[Problem]]:
    """Read what the user mounts; return it with every problem."""
    mounts: list[Mount] = []
    problems: list[Problem] = []
    for text in texts:
        source, target, mode, more = [*text.split(":", 3), "", "", ""][:4]
        source = str(Path(source).expanduser()) if source else source
        target = target or source
        problem = _problem(text, source, target, mode, more) or _twice(text, target, mounts)
        if problem is not None:
            problems.append(problem)
        else:
            mounts.append(Mount(source=source, target=posixpath.normpath(target), read_only=_MODES.get(mode, False)))
    return mounts, problems


def _problem(text: str, source: str, target: str, mode: str, more: str) -> Problem | None:
    hint = "write SRC, SRC:DST or SRC:DST:ro, with absolute paths; a colon cannot be part of a path here"
    if not source.startswith("/"):
        return Problem(key=KEY, what=f"{text!r}: the source {source!r} is not an absolute path", hint=hint)
    if not target.startswith("/") or posixpath.normpath(target) == "/":
        return Problem(
            key=KEY, what=f"{text!r}: the place in the container must be an absolute path below /", hint=hint
        )
    if (mode and mode not in _MODES) or more:
        return Problem(key=KEY, what=f"{text!r}: {':'.join(filter(None, (mode, more)))!r} is no mode", hint=hint)
    return None


def _twice(text: str, target: str, mounts: Sequence[Mount]) -> Problem | None:
    place = posixpath.normpath(target)
    if all(mount.target != place for mount in mounts):
        return None
    return Problem(
        key=KEY, what=f"{text!r}: something else is mounted on {place} already", hint="leave one of them out"
    )


def needed_mounts(job: JobConfig, *, run_dir: Path, cache: Path) -> list[Mount]:
    """Return what the ranks of a job read and write, apart from its code."""
    read = [*_data_paths(job), job.tokenizer.path, hf_folder(job.init_from) if job.init_from else None]
    read += [job.init_from if job.init_from and hf_folder(job.init_from) is None else None, job.backend.path]
    return [
        Mount.same(run_dir, read_only=False),
        Mount.same(cache, read_only=False),
        *(Mount.same(Path(path).expanduser(), read_only=True) for path in read if path),
    ]


def _data_paths(job: JobConfig) -> list[Path]:
    named = (job.data.path, job.data.validation_path)
    texts = [text for path in named for text in ([path] if isinstance(path, str) else path or ())]
    paths = [Path(text).expanduser() for text in texts if "/" in text]
    if job.data.kind == "megatron":  # a prefix of two files, not a file
        return [prefix.parent for prefix in paths]
    return [_fixed(path) for path in paths]


def _fixed(path: Path) -> Path:
    """Return the part of a glob before its first wild part."""
    wild = next((place for place, part in enumerate(path.parts) if any(char in part for char in _WILD)), None)
    return path if wild is None else Path(*path.parts[:wild])


def combine(users: Sequence[Mount], needed: Iterable[Mount]) -> tuple[list[Mount], list[Problem]]:
    """Return all mounts, outer folders first, without those that others cover; and where the user's are in the way."""
    kept, problems = list(users), []
    for mount in sorted(needed, key=lambda mount: (mount.target.count("/"), mount.read_only)):
        if any(other.covers(mount) for other in kept):
            continue
        in_the_way = next((other for other in kept if other.target == mount.target), None)
        if in_the_way is None:
            kept.append(mount)
        elif in_the_way in users:
            problems.append(_in_the_way(in_the_way, mount))
    return sorted(kept, key=lambda mount: (mount.target.count("/"), mount.target)), problems


def _in_the_way(users: Mount, needed: Mount) -> Problem:
    needs = f"{needed.source}{'' if needed.read_only else ', to write in it'}"
    what = f"{users.source} is mounted on {users.target}, where the job needs {needs}"
    return Problem(key=KEY, what=what, hint="mount it somewhere else, or not at all")


def _below(path: str, folder: str) -> str | None:
    """Return the part of a path below a folder; None if it is not in it."""
    if path == folder:
        return ""
    inside = f"{folder.rstrip('/')}/"
    return path.removeprefix(inside) if path.startswith(inside) else None
