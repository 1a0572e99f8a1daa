"""Headers of safetensors files: names, shapes and number formats of the tensors, without reading the tensors.

Refuses a file that is shorter or longer than its header says: a download or a copy that broke off is found before a
run starts. Format: eight bytes of length (little endian), that much JSON, then the data
(https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_LENGTH: Final = struct.Struct("<Q")
_LONGEST_HEADER: Final = 100_000_000
"""The limit of the safetensors library, in bytes."""
FLOATS: Final = ("F32", "BF16", "F16", "F64")
"""Number formats from which weights are read."""


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """One tensor on disk; `dtype` is in the words of safetensors (F32, BF16, ...)."""

    file: Path
    shape: tuple[int, ...]
    dtype: str


class BrokenFileError(ValueError):
    """A file that is not a whole safetensors file; the message says why, without its name."""


def read_header(file: Path) -> dict[str, TensorInfo]:
    """Return the tensors of a safetensors file by name.

    Raises BrokenFileError if it is not one or is not whole, OSError if it cannot be read.
    """
    with file.open("rb") as stream:
        size = file.stat().st_size
        length = _header_length(stream.read(_LENGTH.size), size)
        tree = _parse(stream.read(length))
    tensors = {name: entry for name, entry in tree.items() if name != "__metadata__"}
    try:
        ends = [entry["data_offsets"][1] for entry in tensors.values()]
        found = {name: _info(file, entry) for name, entry in tensors.items()}
    except (KeyError, IndexError, TypeError) as error:
        raise BrokenFileError(f"its header lacks a part: {error}") from error
    expected = _LENGTH.size + length + max(ends, default=0)
    if size != expected:
        raise BrokenFileError(f"it has {size} bytes, its header says {expected}")
    return found


def _header_length(head: bytes, size: int) -> int:
    if len(head) < _LENGTH.size:
        raise BrokenFileError(f"it has only {size} bytes")
    length = int(_LENGTH.unpack(head)[0])
    if length > min(_LONGEST_HEADER, size - _LENGTH.size):
        raise BrokenFileError("it does not begin with the header of a safetensors file")
    return length


def _parse(header: bytes) -> Mapping[str, Any]:
    try:
        tree = json.loads(header)
    except ValueError as error:
        raise BrokenFileError(f"its header is not JSON: {error}") from error
    if not isinstance(tree, dict):
        raise BrokenFileError("its header is not a JSON object")
    return tree


def _info(file: Path, entry: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(file=file, shape=tuple(int(size) for size in entry["shape"]), dtype=str(entry["dtype"]))
