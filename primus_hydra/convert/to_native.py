"""From a Hugging Face folder to a backend's checkpoint: one part after the other, file by file.

The files are torch's distributed checkpoint format as its own reader takes it: each entry is one `torch.save`, found by
file, offset and length in `.metadata`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from primus_hydra.convert.dcp_reader import DcpReader
from primus_hydra.convert.hf_source import HfSource
from primus_hydra.convert.journal import Journal
from primus_hydra.convert.layout import NativeLayout, StoredPart
from primus_hydra.convert.meter import Meter
from primus_hydra.convert.stacking import stack
from primus_hydra.convert.work import Report
from primus_hydra.run.atomic import write_bytes
from primus_hydra.weights.tensors import stays_float32

_OBJECTS: Final = "__0_objects.distcp"
_Placed = dict[MetadataIndex, _StorageInfo]


class ToNative:
    """Builds the parts of a layout; `dtype` None keeps the number format of each tensor."""

    def __init__(self, layout: NativeLayout, source: HfSource, dtype: torch.dtype | None, meter: Meter) -> None:
        self._layout = layout
        self._source = source
        self._meter = meter
        self._dtypes = _dtypes(layout, source, dtype)

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(map(self._size, self._layout.parts))

    @property
    def exact(self) -> bool:
        """Whether every number is kept."""
        return all(
            torch.promote_types(self._source.dtype(piece.tensor), self._dtypes[part.key]) == self._dtypes[part.key]
            for part in self._layout.parts
            for piece in part.pieces
        )

    def write(self, journal: Journal, *, shard_bytes: int, report: Report) -> None:
        """Write every file that is not there yet, and the metadata that makes them a checkpoint."""
        placed: _Placed = {}
        for name, parts in self._files(shard_bytes):
            entry = journal.done(name)
            if entry is None:
                self._write_file(journal, name, parts)
            for part, (at, length) in zip(parts, journal.files[name].contents["places"], strict=True):
                placed[_index(part)] = _StorageInfo(name, at, length)
            report(name, sum(map(self._size, parts)))
        placed |= self._write_objects(journal)
        write_bytes(journal.folder / ".metadata", pickle.dumps(self._metadata(placed)))

    def check(self, folder: Path) -> int:
        """Read every part back and compare it bit by bit; return how many there are. Raises RuntimeError."""
        reader = DcpReader(folder, self._meter)
        for part in self._layout.parts:
            if not torch.equal(reader.read(part.key, part.offset, part.shape), self._build(part)):
                raise RuntimeError(f"{part.key} {part.offset} was read back with other numbers than were written")
        return len(self._layout.parts)

    def _files(self, shard_bytes: int) -> Iterator[tuple[str, Sequence[StoredPart]]]:
        group: list[StoredPart] = []
        number = filled = 0
        for part in self._layout.parts:
            size = self._size(part)
            if group and filled + size > shard_bytes:
                yield f"__0_{number}.distcp", group
                group, filled, number = [], 0, number + 1
            group.append(part)
            filled += size
        yield f"__0_{number}.distcp", group

    def _write_file(self, journal: Journal, name: str, parts: Iterable[StoredPart]) -> None:
        places = []
        with journal.writing(name) as (sink, contents):
            for part in parts:
                at = sink.size
                torch.save(self._build(part), sink)  # type: ignore[arg-type]
                places.append((at, sink.size - at))
            contents["places"] = places

    def _write_objects(self, journal: Journal) -> _Placed:
        if not self._layout.objects:
            return {}
        placed: _Placed = {}
        with journal.writing(_OBJECTS) as (sink, _):
            for key, content in self._layout.objects.items():
                placed[MetadataIndex(key)] = _StorageInfo(_OBJECTS, sink.size, len(content))
                sink.write(content)
        return placed

    def _build(self, part: StoredPart) -> torch.Tensor:
        pieces = [self._source.read(piece) for piece in part.pieces]
        return self._meter.watch(stack(part, pieces, self._dtypes[part.key]))

    def _size(self, part: StoredPart) -> int:
        return torch.Size(part.shape).numel() * self._dtypes[part.key].itemsize

    def _metadata(self, placed: _Placed) -> Metadata:
        tensors = {
            key: TensorStorageMetadata(
                properties=TensorProperties(dtype=self._dtypes[key]), size=torch.Size(shape), chunks=[]
            )
            for key, shape in self._layout.shapes.items()
        }
        for part in self._layout.parts:
            chunk = ChunkStorageMetadata(offsets=torch.Size(part.offset), sizes=torch.Size(part.shape))
            tensors[part.key].chunks.append(chunk)
        objects = {key: BytesStorageMetadata() for key in self._layout.objects}
        return Metadata(state_dict_metadata={**tensors, **objects}, planner_data={}, storage_data=placed)


def _index(part: StoredPart) -> MetadataIndex:
    return MetadataIndex(part.key, torch.Size(part.offset))


def _dtypes(layout: NativeLayout, source: HfSource, wanted: torch.dtype | None) -> Mapping[str, torch.dtype]:
    """Return the number format of each tensor: the widest of its pieces, unless another is wanted."""
    found: dict[str, set[torch.dtype]] = {}
    for part in layout.parts:
        for piece in part.pieces:
            kept = source.dtype(piece.tensor) if wanted is None else wanted
            found.setdefault(part.key, set()).add(torch.float32 if stays_float32(piece.tensor) else kept)
    return {key: reduce(torch.promote_types, dtypes) for key, dtypes in found.items()}
