"""The index file of a Megatron indexed data set: PREFIX.idx says how PREFIX.bin is cut into documents.

Format, version 1, little endian: nine bytes of magic, uint64 version, uint8 code of the token type, uint64 number of
sequences, uint64 length of the document table; then int32 tokens of each sequence, int64 byte offset of each, the
int64 document table (sequences before each document, and after the last), and one int8 per sequence where the set is
multimodal. GPT training takes each sequence for a document, and so do we.

Source: `_IndexWriter` and `_IndexReader` in megatron/core/datasets/indexed_dataset.py, megatron-core 0.16.1.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_MAGIC: Final = b"MMIDIDX\x00\x00"
_HEAD: Final = struct.Struct("<9sQBQQ")
_VERSION: Final = 1
_DTYPES: Final = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_PER_SEQUENCE: Final = 4 + 8
_PER_DOCUMENT: Final = 8


class BrokenIndexError(ValueError):
    """An index file that cannot be one; the message says why, without the file's name."""


@dataclass(frozen=True, kw_only=True)
class MegatronIndex:
    """An index, mapped into memory.

    `dtype` is that of the tokens; `lengths` (int32) counts the tokens of each sequence, `pointers` (int64) are their
    byte offsets in the .bin file.
    """

    dtype: np.dtype[Any]
    lengths: npt.NDArray[np.int32]
    pointers: npt.NDArray[np.int64]

    @property
    def documents(self) -> int:
        """Sequences, each of which is a document of its own for GPT training."""
        return len(self.lengths)

    @property
    def bin_bytes(self) -> int:
        """Size that the .bin file should have; of the arrays only the last entries are read."""
        return int(self.pointers[-1]) + int(self.lengths[-1]) * self.dtype.itemsize if self.documents else 0

    def tokens_in(self, documents: range) -> int:
        """Count the tokens of a stretch of documents by its borders: a .bin file has no gaps."""
        return (self._pointer(documents.stop) - self._pointer(documents.start)) // self.dtype.itemsize

    def _pointer(self, document: int) -> int:
        return int(self.pointers[document]) if document < self.documents else self.bin_bytes


def index_file(prefix: Path) -> Path:
    """Return PREFIX.idx; a dot in the prefix is part of its name."""
    return prefix.with_name(f"{prefix.name}.idx")


def bin_file(prefix: Path) -> Path:
    """Return PREFIX.bin."""
    return prefix.with_name(f"{prefix.name}.bin")


def read_index(file: Path) -> MegatronIndex:
    """Map an index into memory; raises BrokenIndexError if its head or size is wrong, OSError if it cannot be read."""
    with file.open("rb") as stream:
        head = stream.read(_HEAD.size)
        size = os.fstat(stream.fileno()).st_size
    dtype, sequences, table = _read_head(head)
    whole = _HEAD.size + sequences * _PER_SEQUENCE + table * _PER_DOCUMENT
    if size not in (whole, whole + sequences):
        raise BrokenIndexError(f"has {size:,} bytes, and {sequences:,} sequences need {whole:,}")
    lengths = _mapped(file, "<i4", _HEAD.size, sequences)
    pointers = _mapped(file, "<i8", _HEAD.size + lengths.nbytes, sequences)
    return MegatronIndex(dtype=dtype, lengths=lengths, pointers=pointers)


def write_index(file: Path, offsets: npt.NDArray[np.int64], dtype: str) -> None:
    """Write the index of a flat token file whose documents lie end to end; `offsets` are n + 1 token positions.

    uint32 tokens are declared int32, which Megatron knows: the same bytes for every id below 2^31.
    """
    declared = "<i4" if np.dtype(dtype) == np.dtype("<u4") else np.dtype(dtype).newbyteorder("<").str
    code = next(code for code, name in _DTYPES.items() if np.dtype(name) == np.dtype(declared))
    documents = len(offsets) - 1
    with file.open("wb") as stream:
        stream.write(_HEAD.pack(_MAGIC, _VERSION, code, documents, documents + 1))
        stream.write(np.diff(offsets).astype("<i4").tobytes())
        stream.write((np.asarray(offsets[:-1]) * np.dtype(dtype).itemsize).astype("<i8").tobytes())
        stream.write(np.arange(documents + 1, dtype="<i8").tobytes())


def _read_head(head: bytes) -> tuple[np.dtype[Any], int, int]:
    """Return the type of the tokens, the number of sequences and the length of the document table."""
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise BrokenIndexError("does not begin as a Megatron index does")
    _, version, code, sequences, table = _HEAD.unpack(head)
    if version != _VERSION:
        raise BrokenIndexError(f"has version {version}; {_VERSION} can be read")
    if code not in _DTYPES:
        raise BrokenIndexError(f"names the unknown token type {code}")
    dtype = np.dtype(_DTYPES[code])
    if dtype.kind == "f":
        raise BrokenIndexError(f"holds {dtype.name} numbers, no token ids")
    return dtype, sequences, table


def _mapped(file: Path, dtype: str, offset: int, count: int) -> npt.NDArray[Any]:
    # An empty array cannot be mapped.
    return np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=(count,)) if count else np.zeros(0, dtype=dtype)
