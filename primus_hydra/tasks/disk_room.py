"""Whether the disk has room for what a run will save, asked before anything starts.

Exact where the run has saved before. Otherwise a lower bound, from the parameters and the bytes that the backend saves
for each at least: it refuses only what cannot work. The ranks look again before each save, by the real size.
"""

from __future__ import annotations

import contextlib

from primus_hydra.config.count import parameter_count
from primus_hydra.config.instantiate import load_target
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.tokenizer import tokenizer_vocab_size
from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.retention import finished_steps, most_more
from primus_hydra.run.space import GIB, checkpoint_bytes, size_text, space_problem
from primus_hydra.runtime.contracts import BackendAdapter


def refuse_too_little_room(paths: RunPaths, job: JobConfig) -> None:
    """Raise HostError if the disk cannot hold what the run will save."""
    problem = room_problem(paths, job)
    if problem is not None:
        raise HostError(problem)


def room_problem(paths: RunPaths, job: JobConfig) -> Problem | None:
    """Return why the disk cannot hold what the run will save beside what it has saved; None if it can.

    None also where the size of a checkpoint is not known, or the free space.
    """
    settings = job.checkpoint
    if not settings.enable or settings.leave_free_gib is None:
        return None
    saved = [] if job.resume == "never" else finished_steps(paths)
    more = most_more(saved, _coming(job, saved), keep=settings.keep, keep_every=settings.keep_every)
    size = _saved_size(paths, saved) or _least_size(job)
    if size is None or more == 0:
        return None
    each = f"{size_text(size)} each" if saved else f"at least {size_text(size)} each"
    why = f": the run will hold up to {more} more checkpoint{'s' if more > 1 else ''} of {each}"
    with contextlib.suppress(OSError):  # whoever makes the run directory tells what is wrong with it
        return space_problem(paths.checkpoints, more * size + int(settings.leave_free_gib * GIB), why)
    return None


def _coming(job: JobConfig, saved: list[int]) -> list[int]:
    """Return the steps at which the run will save, ascending."""
    every, last, begin = job.checkpoint.every, job.training.steps, max(saved, default=0)
    periodic = range(every * (begin // every + 1), last + 1, every)
    return [*periodic, *([] if last in periodic or last <= begin else [last])]


def _saved_size(paths: RunPaths, saved: list[int]) -> int | None:
    return checkpoint_bytes(paths.checkpoint(saved[-1])) if saved else None


def _least_size(job: JobConfig) -> int | None:
    adapter = load_target(job.backend._target_, BackendAdapter, key="backend._target_")(job)  # type: ignore[type-abstract]
    each = adapter.saved_bytes_per_parameter()
    if each is None:
        return None
    try:
        return each * parameter_count(job.model, job.model.vocab_size or tokenizer_vocab_size(job))
    except (UserError, ValueError):  # the count is open
        return None
