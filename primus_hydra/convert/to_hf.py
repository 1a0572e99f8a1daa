"""From a backend's checkpoint to a Hugging Face folder: one tensor after the other, file by file.

A safetensors file begins with a header that names every tensor and its place, so it is written from front to back
without holding its tensors together.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

import torch

from primus_hydra.convert.dcp_reader import DcpReader
from primus_hydra.convert.hf_source import FORMATS, HfSource
from primus_hydra.convert.journal import Journal, Sink
from primus_hydra.convert.layout import NativeLayout, StoredPart
from primus_hydra.convert.meter import Meter
from primus_hydra.convert.stacking import unstack
from primus_hydra.convert.work import Report
from primus_hydra.weights.export import FilePlan, spread
from primus_hydra.weights.folder import read_folder
from primus_hydra.weights.pieces import Piece, whole_of
from primus_hydra.weights.tensors import Shape, stays_float32

_ALIGNED: Final = 8


class ToHf:
    """Builds the tensors of a model; `dtype` None keeps the number format of each tensor."""

    def __init__(
        self,
        layout: NativeLayout,
        source: DcpReader,
        shapes: Mapping[str, Shape],
        dtype: torch.dtype | None,
        meter: Meter,
    ) -> None:
        self._source = source
        self._shapes = shapes
        self._meter = meter
        self._places = _places(layout)
        self._dtypes = {name: self._dtype(name, dtype) for name in shapes}
        self._last: tuple[StoredPart, torch.Tensor] | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(map(self._size, self._shapes))

    @property
    def dtype(self) -> torch.dtype:
        """The number format that most numbers have."""
        sizes: dict[torch.dtype, int] = {}
        for name, shape in self._shapes.items():
            dtype = self._dtypes[name]
            sizes[dtype] = sizes.get(dtype, 0) + torch.Size(shape).numel()
        return max(sizes, key=lambda dtype: sizes[dtype])

    @property
    def exact(self) -> bool:
        """Whether every number is kept."""
        return all(
            torch.promote_types(self._source.dtype(part.key), self._dtypes[name]) == self._dtypes[name]
            for name, places in self._places.items()
            for part, _ in places.values()
        )

    def write(self, journal: Journal, *, shard_bytes: int, report: Report) -> FilePlan:
        """Write every file that is not there yet; return which file holds what."""
        plan = spread({name: self._size(name) for name in self._shapes}, shard_bytes)
        for file, names in plan.files.items():
            if journal.done(file) is None:
                with journal.writing(file) as (sink, _):
                    self._write_file(sink, names)
            report(file, sum(map(self._size, names)))
        return plan

    def check(self, folder: Path) -> int:
        """Read every tensor back and compare it bit by bit; return how many there are. Raises RuntimeError."""
        with HfSource(read_folder(folder), self._meter) as written:
            for name in self._shapes:
                if not torch.equal(written.read(whole_of(name, self._shapes)), self._build(name)):
                    raise RuntimeError(f"{name} was read back with other numbers than were written")
        return len(self._shapes)

    def _write_file(self, sink: Sink, names: Sequence[str]) -> None:
        sink.write(self._header(names))
        for name in names:
            sink.write(self._build(name).flatten().view(torch.uint8).numpy())

    def _header(self, names: Sequence[str]) -> bytes:
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        at = 0
        for name in names:
            end = at + self._size(name)
            dtype = FORMATS[self._dtypes[name]]
            header[name] = {"dtype": dtype, "shape": list(self._shapes[name]), "data_offsets": [at, end]}
            at = end
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % _ALIGNED)
        return struct.pack("<Q", len(text)) + text

    def _build(self, name: str) -> torch.Tensor:
        shape = self._shapes[name]
        whole = self._meter.watch(torch.empty(shape, dtype=self._dtypes[name]))
        filled = 0
        for piece, (part, top) in self._places[name].items():
            rows = self._rows(part)[top : top + piece.shape[0]]
            whole[piece.where] = rows.to(whole.dtype)
            filled += rows.numel()
        if filled != whole.numel():
            raise RuntimeError(f"the checkpoint's layout gives {filled} of the {whole.numel()} numbers of {name}")
        return whole

    def _rows(self, part: StoredPart) -> torch.Tensor:
        """Return the rows of a part; the last one is kept, as neighbouring tensors often come from the same."""
        if self._last is None or self._last[0] is not part:
            self._last = None
            stored = self._source.read(part.key, part.offset, part.shape)
            self._last = part, self._meter.watch(unstack(part, stored)) if part.pairs else unstack(part, stored)
        return self._last[1]

    def _dtype(self, name: str, wanted: torch.dtype | None) -> torch.dtype:
        if stays_float32(name):
            return torch.float32
        kept = {self._source.dtype(part.key) for part, _ in self._places[name].values()}
        return reduce(torch.promote_types, kept) if wanted is None else wanted

    def _size(self, name: str) -> int:
        return torch.Size(self._shapes[name]).numel() * self._dtypes[name].itemsize


def _places(layout: NativeLayout) -> dict[str, dict[Piece, tuple[StoredPart, int]]]:
    """Return, for each tensor, where its pieces lie: in which part, from which row on. The first of equals counts."""
    places: dict[str, dict[Piece, tuple[StoredPart, int]]] = {}
    for part in layout.parts:
        top = 0
        for piece in part.pieces:
            places.setdefault(piece.tensor, {}).setdefault(piece, (part, top))
            top += piece.shape[0]
    return places
