"""Rectangles out of a torch distributed checkpoint, whatever rectangles it was saved in.

Both backends write this format. Nothing is loaded but the saved rectangles that a wanted one touches, one at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from primus_hydra.convert.meter import Meter
from primus_hydra.errors import HostError, Problem
from primus_hydra.weights.tensors import Shape


class DcpReader:
    """An open checkpoint; raises HostError if it cannot be read."""

    def __init__(self, folder: Path, meter: Meter) -> None:
        self._folder = folder
        self._meter = meter
        self._storage = FileSystemReader(folder)
        try:
            metadata: Metadata = self._storage.read_metadata()
            self._storage.set_up_storage_reader(metadata, is_coordinator=True)
        except Exception as error:  # pickle has no one error for a damaged file
            raise self._unreadable(error) from error
        entries = metadata.state_dict_metadata.items()
        self._tensors = {name: entry for name, entry in entries if isinstance(entry, TensorStorageMetadata)}

    @property
    def shapes(self) -> dict[str, Shape]:
        """Name and whole shape of every tensor, the optimizer's too."""
        return {name: tuple(entry.size) for name, entry in self._tensors.items()}

    def dtype(self, key: str) -> torch.dtype:
        """Return the number format of a tensor."""
        return self._tensors[key].properties.dtype

    def read(self, key: str, offset: Shape, shape: Shape) -> torch.Tensor:
        """Return one rectangle, in memory of its own."""
        target = self._meter.watch(torch.empty(shape, dtype=self.dtype(key)))
        wanted = ChunkStorageMetadata(offsets=torch.Size(offset), sizes=torch.Size(shape))
        items = create_read_items_for_chunk_list(key, self._tensors[key], [wanted])
        if sum(item.lengths.numel() for item in items) != target.numel():
            raise self._unreadable(f"a part of {key} was never saved")
        try:
            self._storage.read_data(LoadPlan(items), _Into(target)).wait()  # type: ignore[arg-type]
        except Exception as error:  # zip, pickle and the file system have errors of their own
            raise self._unreadable(error) from error
        return target

    def _unreadable(self, reason: Exception | str) -> HostError:
        said = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        return HostError(Problem(what=f"the checkpoint cannot be read: {said}", where=str(self._folder)))


class _Into:
    """The part of torch's load planner that its reader asks: where the numbers go."""

    def __init__(self, target: torch.Tensor) -> None:
        self._target = target

    def resolve_tensor(self, item: ReadItem) -> torch.Tensor:
        """Return the view that an item fills."""
        view = self._target
        for dim, (offset, length) in enumerate(zip(item.dest_offsets, item.lengths, strict=True)):
            view = view.narrow(dim, offset, length)
        return view

    def commit_tensor(self, item: ReadItem, tensor: torch.Tensor) -> None:
        """Nothing: the view was the target."""

    def load_bytes(self, item: ReadItem, value: Any) -> None:
        """Nothing but tensors is asked for."""
        raise NotImplementedError
