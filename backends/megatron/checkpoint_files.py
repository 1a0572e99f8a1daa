"""Writing and reading the files of Megatron's distributed checkpoints, in one way for all supported versions.

Megatron hands the writing of a rank's files to processes: a manager that imports the main script again, and forks of a
process whose libraries have threads and a GPU. Here they are written by threads of the rank: nothing is started anew, a
failure is an exception, and a write that outlives its step works on copies. Planning and reading are Megatron's.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import queue
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.dist_checkpointing.strategies.fully_parallel import (
    FullyParallelLoadStrategyWrapper,
    FullyParallelSaveStrategyWrapper,
)
from megatron.core.dist_checkpointing.strategies.torch import TorchDistLoadShardedStrategy, TorchDistSaveShardedStrategy

_FORMAT, _FORMAT_VERSION = "torch_dist", 1
_COMMON = "common.pt"
_READS_COMMON_FILE = "common_strategy" in inspect.signature(dist_checkpointing.load).parameters


@dataclass(frozen=True, kw_only=True)
class PlannedSave:
    """A save whose files are decided on: `write` needs no other rank, `finish` is collective and follows it."""

    write: Callable[[], None]
    finish: Callable[[], None]


class FileWriter:
    """Plans saves; one for all saves of a run, since the first one also checks that all tensors are covered."""

    def __init__(self, *, fully_parallel: bool) -> None:
        self._strategy = ThreadedSave(_FORMAT, _FORMAT_VERSION)
        self._fully_parallel = fully_parallel
        self._checked = False

    def plan(self, state: dict[str, Any], folder: Path, *, copies: bool) -> PlannedSave:
        """Decide who writes what into the existing `folder`; collective.

        With `copies` the state may change as soon as this returns. Raises OSError where the folder cannot be written.
        """
        self._strategy.copies = copies
        strategy: Any = self._strategy
        if self._fully_parallel:
            strategy = FullyParallelSaveStrategyWrapper(strategy, _data_parallel_group())
        with _without_notices():
            request = dist_checkpointing.save(
                state,
                str(folder),
                strategy,
                validate_access_integrity=not self._checked,
                async_sharded_save=True,
                **_accepted(dist_checkpointing.save, async_strategy="mcore"),
            )
        self._checked = True
        return PlannedSave(write=request.async_fn, finish=lambda: _call_all(request.finalize_fns))


def read(state: dict[str, Any], folder: Path, *, fully_parallel: bool) -> dict[str, Any]:
    """Return `state` with its shards as `folder` holds them, beside what is common to all ranks; collective."""
    strategy: Any = TorchDistLoadShardedStrategy()
    if fully_parallel:
        strategy = FullyParallelLoadStrategyWrapper(strategy, _data_parallel_group())
    with _without_notices():
        loaded: dict[str, Any] = dist_checkpointing.load(state, str(folder), strategy)
    return loaded


def read_common(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint holds once for all ranks."""
    _require_files(folder)
    common: dict[str, Any] = dist_checkpointing.load_common_state_dict(str(folder))
    return common


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return name and whole shape of every tensor in a checkpoint."""
    _require_files(folder)
    tensors = dist_checkpointing.load_tensors_metadata(str(folder))
    return {name: tuple(tensor.global_shape) for name, tensor in tensors.items()}


def _require_files(folder: Path) -> None:
    """Raise FileNotFoundError, in words, for what Megatron would fail on in other ways."""
    if not folder.is_dir():
        raise FileNotFoundError("there is no such folder")
    for name in (".metadata", "metadata.json"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"it has no {name}")
    if _READS_COMMON_FILE and not (folder / _COMMON).is_file():
        raise FileNotFoundError(f"it has no {_COMMON}; megatron-core 0.17 and later write none, and 0.16 needs it")


class ThreadedSave(TorchDistSaveShardedStrategy):  # type: ignore[misc]
    """Megatron's strategy, whose files are written by threads of this process."""

    copies = False

    def async_save(self, *args: Any, **kwargs: Any) -> Any:
        """Plan the save; what writes it and what completes it is in the answer."""
        with _results_in_this_process():
            return super().async_save(*args, **kwargs)

    def _get_save_and_finalize_callbacks(self, writer: Any, *args: Any) -> Any:
        request = super()._get_save_and_finalize_callbacks(writer, *args)
        # A rank may have nothing to write.
        buckets = _on_the_host(writer.write_buckets or [], copies=self.copies)
        transforms = [writer.transforms] if hasattr(writer, "transforms") else []
        return request._replace(
            async_fn=lambda: _write(buckets, transforms, writer.results_queue), async_fn_args=(), preload_fn=None
        )


def _on_the_host(buckets: list[Any], *, copies: bool) -> list[Any]:
    """Return the buckets with their tensors in host memory, as copies if the training goes on meanwhile."""
    return [
        (path, key, (objects, [(item, tensor.detach().to("cpu", copy=copies)) for item, tensor in tensors]))
        for path, key, (objects, tensors) in buckets
    ]


def _write(buckets: list[Any], transforms: list[Any], results: Any) -> None:
    """Write one file per bucket, at the same time; leave for the planner what was written where."""
    if not buckets:
        return
    with ThreadPoolExecutor(len(buckets), thread_name_prefix="checkpoint") as threads:
        numbered = threads.map(lambda item: _write_file(item[0], item[1], transforms), enumerate(buckets))
        results.put(dict(enumerate(numbered)))


def _write_file(number: int, bucket: Any, transforms: list[Any]) -> Any:
    written: queue.Queue[Any] = queue.Queue()
    working: queue.Queue[int] = queue.Queue()
    working.put(number)
    filesystem_async.FileSystemWriterAsync.write_preloaded_data(
        transforms, number, bucket, written, working, use_fsync=True
    )
    _, result = written.get_nowait()
    if isinstance(result, Exception):
        raise result
    return result


@contextlib.contextmanager
def _results_in_this_process() -> Iterator[None]:
    """Give Megatron's writer a plain queue where it would otherwise start the process of a manager."""
    before, filesystem_async._results_queue = filesystem_async._results_queue, queue.Queue()
    try:
        yield
    finally:
        filesystem_async._results_queue = before


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Hold back what torch and Megatron say of each other's calls: a user can do nothing about it."""
    log = logging.getLogger(TorchDistSaveShardedStrategy.__module__)
    log.addFilter(_is_news)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="`load_state_dict` is deprecated", category=FutureWarning)
            warnings.filterwarnings("ignore", message="Please use DTensor instead", category=FutureWarning)
            yield
    finally:
        log.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("MCore's async save is deprecated")


def _accepted(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return those of the arguments that this version's function has."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


def _data_parallel_group() -> Any:
    return parallel_state.get_data_parallel_group(with_context_parallel=True)


def _call_all(functions: list[Callable[[], None]]) -> None:
    for function in functions:
        function()
