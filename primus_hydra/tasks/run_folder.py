"""Which directory a job's run has, and whether the job may go on in it.

The same command is the same run. A run whose determining values or whose text changed is refused with the difference,
so that a checkpoint is never continued by another training unseen.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from primus_hydra.config.composed import Composed
from primus_hydra.config.identity import default_name, differences, point_name, short_hash
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import Problem, UserError
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.spec import AttemptSpec

_LONGEST_NAME_BYTES = 160
"""File systems take 255 bytes; a hash, a number and the names of trackers' files come on top."""
_MAY_CHANGE = "start a new run with run.fresh=true or another run.name, or go on all the same with resume=must"


def run_paths(composed: Composed) -> RunPaths:
    """Return the paths of the job's run; nothing is created. `run.fresh` takes the first name that is free."""
    job = composed.job
    name = folder_name(job.run.name or default_name(composed.tree))
    base = Path(job.run.dir).expanduser().absolute()
    root = base / name / point_name(composed.swept) if composed.swept else base / name
    return RunPaths(_first_free(root) if job.run.fresh else root)


def folder_name(name: str) -> str:
    """Return the name of a run's directory: the run's own name where that makes a plain one.

    Letters and digits of any script and `._-+=@` stay; anything else becomes `_`, a leading dot too, and a long name is
    cut. A changed name ends in a hash of the whole one, so that two names never share a directory.
    """
    letters = "".join(letter if _stays(letter) else "_" for letter in unicodedata.normalize("NFC", name))
    plain = f"_{letters[1:]}" if letters.startswith((".", "-")) else letters
    short = plain.encode()[:_LONGEST_NAME_BYTES].decode(errors="ignore")
    return name if short == name else f"{short}-{short_hash(name)}"


def _stays(letter: str) -> bool:
    return letter.isalnum() or letter in "._-+=@" or unicodedata.category(letter).startswith("M")


def refuse_other_training(paths: RunPaths, tree: Mapping[str, Any], resume: str) -> None:
    """Raise UserError if the run was started with other determining values; `resume=must` goes on all the same."""
    before = _saved_tree(paths.config)
    changed = {} if before is None or resume == "must" else differences(before, tree)
    if changed:
        listed = ", ".join(f"{leaf}: {_short(old)} -> {_short(new)}" for leaf, (old, new) in changed.items())
        what = f"the run {paths.root.name} was started with other values ({listed})"
        raise UserError(Problem(key="run.name", what=what, where=str(paths.root), hint=_MAY_CHANGE))


def refuse_other_text(paths: RunPaths, attempt: int, data: PreparedData, resume: str) -> None:
    """Raise UserError if the text of the data changed since the attempt before; `resume=must` goes on all the same."""
    before = _data_of(paths, attempt - 1)
    if before is None or resume in ("must", "never") or before.corpus_hash == data.corpus_hash:
        return
    what = f"the text behind the run changed: it was {before.corpus_hash}, it is {data.corpus_hash}"
    raise UserError(Problem(key="data", what=what, where=str(paths.root), hint=_MAY_CHANGE))


def next_attempt(paths: RunPaths) -> int:
    """Return the number of the coming attempt, from 1."""
    numbers = [int(folder.name) for folder in paths.attempts.glob("*") if folder.name.isdigit()]
    return max(numbers, default=0) + 1


def _first_free(root: Path) -> Path:
    names = itertools.chain([root], (root.with_name(f"{root.name}-{number}") for number in itertools.count(2)))
    return next(path for path in names if not path.exists())


def _saved_tree(config: Path) -> dict[str, Any] | None:
    try:
        tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return None
    return tree if isinstance(tree, dict) else None


def _data_of(paths: RunPaths, attempt: int) -> PreparedData | None:
    try:
        return AttemptSpec.read(paths.attempt(attempt).spec).data
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
