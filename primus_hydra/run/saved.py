"""What a run has saved of itself: its resolved configuration, the sources of the values, the command that began it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import yaml

from primus_hydra.config.provenance import Source, SourceKind
from primus_hydra.run.atomic import read_json, write_json
from primus_hydra.run.paths import RunPaths


@dataclass(frozen=True, kw_only=True)
class RunCommand:
    """The command that began an attempt.

    `argv` is the process's own, `overrides` are what it composed from, `swept` those that a sweep varied, `folder` is
    where it was typed: relative paths count from there.
    """

    argv: tuple[str, ...]
    overrides: tuple[str, ...]
    swept: tuple[str, ...]
    folder: str


def write_command(path: Path, command: RunCommand) -> None:
    """Write the command of an attempt."""
    write_json(path, asdict(command))


def newest_command(paths: RunPaths) -> RunCommand | None:
    """Return the command of the newest attempt that has one, or that of a job in which no attempt has begun yet."""
    attempts = (paths.attempt(number).command for number in reversed(paths.attempt_numbers()))
    submissions = (paths.submission(number).command for number in reversed(paths.submission_numbers()))
    read = (read_command(path) for path in (*attempts, *submissions))
    return next((command for command in read if command is not None), None)


def saved_tree(config: Path) -> dict[str, Any] | None:
    """Return the resolved configuration as plain data; None where it cannot be read, or is something else."""
    try:
        tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return tree if isinstance(tree, dict) else None


def saved_sources(provenance: Path) -> dict[str, Source]:
    """Return the source of each leaf; a leaf whose source cannot be read is left out."""
    found = ((leaf, _source_of(said)) for leaf, said in (read_json(provenance) or {}).items())
    return {leaf: source for leaf, source in found if source is not None}


def _source_of(said: object) -> Source | None:
    if not isinstance(said, Mapping):
        return None
    kind: SourceKind | None = next((kind for kind in get_args(SourceKind) if kind == said.get("kind")), None)
    text, file, line = said.get("text"), said.get("file"), said.get("line")
    if kind is None or not isinstance(text, str):
        return None
    return Source(
        kind=kind,
        text=text,
        file=file if isinstance(file, str) else None,
        line=line if isinstance(line, int) else None,
    )


def read_command(path: Path) -> RunCommand | None:
    """Return the command in a file; None if it holds none."""
    data = read_json(path)
    try:
        return None if data is None else _command_of(data)
    except (KeyError, TypeError):
        return None


def _command_of(data: Mapping[str, object]) -> RunCommand:
    return RunCommand(
        argv=_words(data["argv"]),
        overrides=_words(data["overrides"]),
        swept=_words(data["swept"]),
        folder=str(data["folder"]),
    )


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"not a list of words: {value!r}")
    return tuple(str(word) for word in value)
