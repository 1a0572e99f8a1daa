"""What all ranks must know of each other around a save: whether everyone is done, and who failed and why.

Uses a gloo group of its own: the training's groups may be NCCL, where such a question would wait for the device.
One process needs no communication.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from megatron.core.dist_checkpointing.core import CheckpointingException
from torch.distributed.checkpoint.api import CheckpointException

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

FILE_ERRORS = (
    OSError,
    EOFError,
    KeyError,
    RuntimeError,
    ValueError,
    UnpicklingError,
    CheckpointException,
    CheckpointingException,
)
"""What torch and Megatron raise for files that they cannot use."""


class Ranks:
    """All ranks of the job; every method is collective."""

    def __init__(self) -> None:
        self._world_size = dist.get_world_size()
        self._rank = dist.get_rank()
        self._group: dist.ProcessGroup | None = None

    def all_true(self, mine: bool) -> bool:
        """Whether it holds on every rank."""
        if self._world_size == 1:
            return mine
        flag = torch.tensor([int(mine)], dtype=torch.int32)
        dist.all_reduce(flag, op=dist.ReduceOp.MIN, group=self._gloo())
        return bool(flag.item())

    def gathered(self, mine: Any) -> list[Any]:
        """Return what each rank gave, in their order; picklable objects."""
        if self._world_size == 1:
            return [mine]
        everyone: list[Any] = [None] * self._world_size
        dist.all_gather_object(everyone, mine, group=self._gloo())
        return everyone

    def first_failure(self, error: BaseException | None) -> str | None:
        """Return the words for the first rank's failure, the same on all ranks, or None if there is none."""
        told = self.gathered(None if error is None else words_for(error))
        found = [(rank, text) for rank, text in enumerate(told) if text is not None]
        return f"rank {found[0][0]}: {found[0][1]}" if found else None

    def all_succeed(self, action: Callable[[], Value]) -> tuple[Value | None, str | None]:
        """Act on every rank; return the result, or the words for the first rank that could not use its files."""
        result: Value | None = None
        error: BaseException | None = None
        try:
            result = action()
        except FILE_ERRORS as caught:
            _log.error("%s", words_for(caught), exc_info=True)
            error = caught
        return result, self.first_failure(error)

    def on_first(self, action: Callable[[], object]) -> str | None:
        """Let rank 0 act while the others wait; return the words for its OSError, on all ranks, or None."""
        error: OSError | None = None
        if self._rank == 0:
            try:
                action()
            except OSError as caught:
                error = caught
        return self.first_failure(error)

    def _gloo(self) -> dist.ProcessGroup:
        if self._group is None:
            self._group = cast("dist.ProcessGroup", dist.new_group(backend="gloo", group_desc="primus_checkpoints"))
        return self._group


def words_for(error: BaseException) -> str:
    """Return the words for an error of reading or writing files: of the one behind it, where torch gathered several."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}".rstrip(": ")
