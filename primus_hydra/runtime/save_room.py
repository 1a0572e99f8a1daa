"""Room on the disk for a save, judged before it, and what becomes of one that found none.

A periodic save without room is skipped and the training goes on: weeks of work are not given up because a disk is
full for an hour, and the next save tries again. That is told once, in the log and by the launcher, and by `task=runs`
until a save succeeds. The last save of a run, and the one at a stop, is all that would remain of the steps since the
save before: it may use what `checkpoint.leave_free_gib` keeps from others, and if it fails the run ends with exit code
3 and says so.

Before anything is skipped, room is made by what would go anyway: leftovers of deletions and of saves that were cut
off, then old checkpoints that the coming one makes superfluous, and only if that is enough. The newest complete
checkpoint whose files are as they were saved always stays. A save that runs out of space in the middle is removed, so
that it does not keep the disk full. Rank 0 judges, and all ranks do as it says. Imports no torch.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from primus_hydra.config.schema.training import CheckpointConfig
from primus_hydra.errors import HostError, Problem
from primus_hydra.run.checkpoints import checkpoint_steps
from primus_hydra.run.manifest import verify
from primus_hydra.run.retention import finished_steps, retire, spare, sweep_retired
from primus_hydra.run.space import GIB, checkpoint_bytes, folder_bytes, free_bytes, lacking, ran_out
from primus_hydra.run.unsaved import Unsaved, write_unsaved
from primus_hydra.runtime.contracts import RankContext

_log = logging.getLogger(__name__)

TENSOR_BYTES = 2048
"""What a file has around each piece of a tensor: name, place and form, there and in the metadata."""
VALUE_BYTES = 1024
"""What a value takes that is no tensor and is saved under a name of its own."""
RANK_BYTES = 64 * 1024
"""What a rank has to save beside tensors: the states of its generators, its place in the data, names."""
ALLOWANCE = 64
"""A periodic save must leave one part in so many of itself free, and `LOGS_BYTES`: other files of the run grow too."""
LOGS_BYTES = 1024**2

Gather = Callable[[Any], list[Any]]
"""Returns what each rank gave, in their order; collective."""


@dataclass(frozen=True, kw_only=True)
class StatePart:
    """What one rank holds of the state that is saved.

    Ranks that hold the same part, or pieces of it, give it the same name, and the size of all of it.
    """

    name: str
    tensor_bytes: int
    tensors: int
    values: int = 0


def file_bytes(parts: Sequence[StatePart]) -> int:
    """Return the room that the parts of all ranks take in files, rather too much than too little."""
    different = {part.name: part.tensor_bytes + part.values * VALUE_BYTES for part in parts}
    return sum(different.values()) + sum(part.tensors * TENSOR_BYTES + RANK_BYTES for part in parts)


class SaveRoom:
    """The saves of one run on one rank; every method is collective, except where it says otherwise."""

    def __init__(self, context: RankContext, settings: CheckpointConfig, gather: Gather) -> None:
        self._context = context
        self._paths = context.paths
        self._settings = settings
        self._gather = gather
        self._state_bytes: int | None = None
        self._saved_bytes: int | None = None
        self._skipped: Unsaved | None = None

    @property
    def unmeasured(self) -> bool:
        """Whether the size of the state has still to be told; the same on all ranks. Not collective."""
        return self._state_bytes is None and self._settings.leave_free_gib is not None

    def measure(self, part: StatePart) -> None:
        """Tell how much this rank has to save."""
        self._state_bytes = file_bytes(self._gather(part))

    def admits(self, step: int, *, last: bool) -> bool:
        """Whether `step` is to be saved; False if it is skipped for want of room. `last`: nothing is saved after it.

        Raises HostError if there is no room for the last save; all ranks raise it.
        """
        if self._settings.leave_free_gib is None:
            return True
        lack = self._said_by_first(lambda: self._lack(step, last=last))
        if lack is None:
            return True
        if last:
            raise self.failed(step, lack)
        self._skip(step, lack)
        return False

    def succeeded(self, step: int, error: BaseException | None, *, last: bool) -> bool:
        """Hear on every rank how writing `step` went; whether all of it is written, False if it is given up.

        Raises HostError, on all ranks, for a failure of the last save, or one that another reason than a full disk had.
        """
        told = self._gather(None if error is None else (_words(self._context.rank, error), ran_out(error)))
        failures = [said for said in told if said is not None]
        if not failures:
            return True
        words, out_of_space = failures[0][0], any(full for _, full in failures)
        out_of_space = self._said_by_first(lambda: out_of_space or self._looks_full(step))
        if out_of_space:
            self.remove(step)
        if last or not out_of_space:
            raise self.failed(step, f"{words} (the disk is full)" if out_of_space else words)
        self._skip(step, f"the disk filled up ({words})")
        return False

    def completed(self, step: int) -> None:
        """Note that `step` is complete. Not collective."""
        skipped, self._skipped = self._skipped, None
        if not self._context.is_main:
            return
        self._saved_bytes = checkpoint_bytes(self._paths.checkpoint(step)) or self._saved_bytes
        with contextlib.suppress(OSError):
            self._paths.attempt(self._context.attempt).unsaved.unlink(missing_ok=True)
        if skipped is not None:
            _log.warning("step %d is saved, the first since step %d was skipped", step, skipped.since)

    def remove(self, step: int) -> None:
        """Remove on rank 0 what a save that failed has written. Not collective, but no rank may still be writing."""
        if self._context.is_main and step not in finished_steps(self._paths):
            _delete(self._context, step)

    def failed(self, step: int, words: str) -> HostError:
        """Return the error of a save. Not collective."""
        complete = finished_steps(self._paths)
        there = f"step {complete[-1]} is the newest that is saved" if complete else "nothing is saved"
        hint = f"{there}; free space or mend the disk, then start the run again: it goes on from there"
        where = str(self._paths.checkpoint(step))
        return HostError(Problem(what=f"step {step} could not be saved: {words}", where=where, hint=hint))

    def _said_by_first(self, judge: Callable[[], Any]) -> Any:
        return self._gather(judge() if self._context.is_main else None)[0]

    def _lack(self, step: int, *, last: bool) -> str | None:
        """Return in words what is missing, None if there is room, which is made where that is possible."""
        try:
            needed = self._needed(last=last)
            if needed is None or self._missing(needed) <= 0:
                return None
            self._clear(step)
            self._give_way(step, self._missing(needed))
            free = free_bytes(self._paths.checkpoints)
        except OSError as error:
            _log.warning("the free space cannot be found out, so %d is saved without looking: %s", step, error)
            return None
        return None if free is None or free >= needed else lacking(needed, free)

    def _needed(self, *, last: bool) -> int | None:
        size = self._size()
        if size is None or last:
            return size
        return size + size // ALLOWANCE + LOGS_BYTES + int((self._settings.leave_free_gib or 0) * GIB)

    def _size(self) -> int | None:
        if self._saved_bytes or self._state_bytes:
            return self._saved_bytes or self._state_bytes
        steps = finished_steps(self._paths)
        return checkpoint_bytes(self._paths.checkpoint(steps[-1])) if steps else None

    def _missing(self, needed: int) -> int:
        free = free_bytes(self._paths.checkpoints)
        return 0 if free is None else needed - free

    def _clear(self, step: int) -> None:
        """Delete what no one needs: nothing is being saved at this moment, and no other attempt is alive."""
        sweep_retired(self._paths)
        complete = finished_steps(self._paths)
        for other in {*checkpoint_steps(self._paths)} - {*complete}:
            # An older one may be somebody's who wants to see what is left of it.
            if other == step or (complete and other > complete[-1]):
                _delete(self._context, other)

    def _give_way(self, step: int, missing: int) -> None:
        """Delete as few superfluous checkpoints as are needed, the oldest first; none where they are not enough."""
        settings, complete = self._settings, finished_steps(self._paths)
        good = next((old for old in reversed(complete) if verify(self._paths.checkpoint(old)) is None), None)
        old = [s for s in spare(complete, step, keep=settings.keep, keep_every=settings.keep_every) if s < (good or 0)]
        sizes = [checkpoint_bytes(self._paths.checkpoint(other)) or 0 for other in old]
        if missing <= 0 or sum(sizes) < missing:
            return
        for other, size in zip(old, sizes, strict=True):
            if missing <= 0:
                return
            _log.warning("step %d is deleted before step %d is saved: the disk has no room for both", other, step)
            _delete(self._context, other)
            missing -= size

    def _looks_full(self, step: int) -> bool:
        """Whether less is free than was still to be written, whatever the error says."""
        try:
            free = free_bytes(self._paths.checkpoints)
            unwritten = (self._size() or LOGS_BYTES) - folder_bytes(self._paths.checkpoint(step))
        except OSError:
            return False
        return free is not None and free < unwritten

    def _skip(self, step: int, why: str) -> None:
        first, complete = self._skipped is None, finished_steps(self._paths)
        since = step if self._skipped is None else self._skipped.since
        self._skipped = Unsaved(since=since, latest=step, why=why, complete=complete[-1] if complete else None)
        if self._context.is_main:
            write_unsaved(self._paths.attempt(self._context.attempt).unsaved, self._skipped)
            level = logging.WARNING if first else logging.INFO
            _log.log(level, "%s; the training goes on, and the next save tries again", self._skipped.describe())


def _delete(context: RankContext, step: int) -> None:
    retired = retire(context.paths.checkpoint(step))
    if retired is not None:
        shutil.rmtree(retired, ignore_errors=True)


def _words(rank: int, error: BaseException) -> str:
    """Return the words for a rank's error of writing files: of the first rank's, where torch gathered those of all."""
    failures = getattr(error, "failures", None)
    if isinstance(failures, Mapping) and failures:
        rank, (error, *_) = next(iter(failures.items()))
    said = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}".rstrip(": ")
    return f"rank {rank}: {said}"
