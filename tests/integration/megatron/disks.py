"""What can happen to a disk while checkpoints are written: called in a rank before its training."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

_LONGEST_WAIT_S = 1.0
"""The last save of a training sees no update after it."""


def slow(rank: int) -> None:
    """Write a file only after the weights were updated once more.

    RUN/writes-RANK.txt tells when a file is begun and done.
    """
    write, lock, updated = _writer(), threading.Lock(), threading.Condition()
    _after_each_update(updated)

    def slowly(transforms: Any, number: int, bucket: Any, *args: Any, **kwargs: Any) -> Any:
        folder = Path(bucket[0]).parent
        notes = folder.parents[1] / f"writes-{rank}.txt"
        with lock, notes.open("a") as file:
            file.write(f"begin {folder.name}\n")
        with updated:
            updated.wait(_LONGEST_WAIT_S)
        result = write(transforms, number, bucket, *args, **kwargs)
        with lock, notes.open("a") as file:
            file.write(f"end {folder.name}\n")
        return result

    _replace(slowly)


def full(rank: int) -> None:
    """Have no room on the second rank for the files of step 4."""
    write = _writer()

    def without_room(transforms: Any, number: int, bucket: Any, *args: Any, **kwargs: Any) -> Any:
        path = Path(bucket[0])
        if rank == 1 and path.parent.name == "step-4":
            # As a disk that is full: the file is there, and not whole.
            path.write_bytes(b"begun")
            raise OSError(28, "No space left on device", str(path))
        return write(transforms, number, bucket, *args, **kwargs)

    _replace(without_room)


def diverging(rank: int) -> None:
    """Lose the loss of step 3 while the files of step 2 are being written."""
    from primus_hydra.backends.megatron import loop

    write, measure, steps = _writer(), loop.mean_loss, itertools.count(1)

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(_LONGEST_WAIT_S)
        return write(*args, **kwargs)

    def measured(*args: Any) -> tuple[float, int]:
        loss, tokens = measure(*args)
        return (float("nan") if next(steps) == 3 else loss), tokens

    loop.mean_loss = measured
    _replace(slowly)


def _after_each_update(updated: threading.Condition) -> None:
    from megatron.core.optimizer.optimizer import FP32Optimizer

    update = FP32Optimizer.step_with_ready_grads

    def step_with_ready_grads(self: Any) -> Any:
        done = update(self)
        with updated:
            updated.notify_all()
        return done

    FP32Optimizer.step_with_ready_grads = step_with_ready_grads


def _writer() -> Any:
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    return FileSystemWriterAsync.write_preloaded_data


def _replace(write: Any) -> None:
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    FileSystemWriterAsync.write_preloaded_data = staticmethod(write)
