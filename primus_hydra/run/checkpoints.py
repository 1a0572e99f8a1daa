"""Which checkpoint a run goes on from: the newest complete one. Damaged ones are set aside, never deleted."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.run.manifest import verify
from primus_hydra.run.paths import RunPaths

Resume = Literal["auto", "never", "must"]
_NAME = re.compile(r"step-(\d+)")


class SetAside(NamedTuple):
    """A checkpoint that cannot be used: where it lies, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The step to go on from, None for a start from nothing, and the newer checkpoints that could not be used."""

    step: int | None
    set_aside: tuple[SetAside, ...] = ()


def checkpoint_steps(paths: RunPaths) -> list[int]:
    """Return the steps of all checkpoint folders, ascending, complete or not."""
    if not paths.checkpoints.is_dir():
        return []
    matches = ((_NAME.fullmatch(folder.name), folder) for folder in paths.checkpoints.iterdir())
    return sorted(int(match[1]) for match, folder in matches if match and folder.is_dir())


def complete_steps(paths: RunPaths) -> list[int]:
    """Return the steps of all complete checkpoints, ascending; reads every one of them."""
    return [step for step in checkpoint_steps(paths) if verify(paths.checkpoint(step)) is None]


def find_checkpoint(paths: RunPaths, resume: Resume) -> Choice:
    """Choose without touching the disk, as a plan does; the paths in the choice are the present ones.

    Raises UserError if `resume` is must and there is no complete checkpoint.
    """
    if resume == "never":
        return Choice(step=None)
    damaged: list[SetAside] = []
    for step in reversed(checkpoint_steps(paths)):
        problem = verify(paths.checkpoint(step))
        if problem is None:
            return Choice(step=step, set_aside=tuple(damaged))
        damaged.append(SetAside(paths.checkpoint(step), problem.what))
    if resume == "must":
        raise UserError(_nothing_to_resume(paths, damaged))
    return Choice(step=None, set_aside=tuple(damaged))


def pick_checkpoint(paths: RunPaths, resume: Resume) -> Choice:
    """Choose, and rename what is damaged and newer than the choice; the paths in the result are the new ones.

    Raises UserError if `resume` is must and there is no complete checkpoint, HostError if a folder cannot be renamed.
    """
    choice = find_checkpoint(paths, resume)
    moved = tuple(SetAside(_rename_aside(item.path), item.reason) for item in choice.set_aside)
    return Choice(step=choice.step, set_aside=moved)


def _rename_aside(folder: Path) -> Path:
    target = _free_name(folder)
    try:
        return folder.rename(target)
    except OSError as error:
        raise HostError(Problem(what=f"a damaged checkpoint cannot be renamed: {error}", where=str(folder))) from error


def _free_name(folder: Path) -> Path:
    # Not `step-5.damaged`: torchtitan counts every name that holds `step-5` as a checkpoint and deletes old ones.
    base = "damaged-" + folder.name.removeprefix("step-")
    names = itertools.chain([base], (f"{base}.{number}" for number in itertools.count(2)))
    return next(path for path in map(folder.with_name, names) if not path.exists())


def _nothing_to_resume(paths: RunPaths, damaged: list[SetAside]) -> Problem:
    reasons = "".join(f"; {item.reason}" for item in damaged)
    return Problem(
        key="resume",
        what=f"resume=must, but the run has no complete checkpoint{reasons}",
        where=str(paths.checkpoints),
        hint="use resume=auto to start from nothing, or run.dir and run.name of the run that you mean",
    )
