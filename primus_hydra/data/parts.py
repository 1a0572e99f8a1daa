"""A corpus cut into parts of about equal work, in order: what a process encodes at a time.

The documents of all parts, one part after the other, are those of the corpus; how it is cut changes no token. Sizes are
guessed from the files' own: a packed text is about four times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from primus_hydra.data.file_readers import DOCUMENT_LIMIT, format_of
from primus_hydra.data.packed_files import packing_of
from primus_hydra.data.source import WHOLE, Source, Window

_UNPACKED: Final = 4
Row = tuple[int, int, int | None, int]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A window of source number `source`; `size` is a guess of its text, in bytes."""

    source: int
    window: Window
    size: int

    def to_row(self) -> Row:
        """Return plain data."""
        return self.source, self.window.first, self.window.stop, self.size

    @classmethod
    def from_row(cls, row: Sequence[int | None]) -> Piece:
        """Read what `to_row` wrote."""
        source, first, stop, size = row
        return cls(source=source or 0, window=Window(first=first or 0, stop=stop), size=size or 0)


Part = tuple[Piece, ...]


def cut(sources: Sequence[Source], part_bytes: int) -> list[Part]:
    """Cut large sources, and gather small ones, into parts of about `part_bytes` of text."""
    parts: list[Part] = []
    gathered: list[Piece] = []
    for piece in (piece for number, source in enumerate(sources) for piece in _pieces(number, source, part_bytes)):
        gathered.append(piece)
        # A window of a large source is a part of its own, also where it is a little smaller than was asked for.
        if sum(one.size for one in gathered) >= part_bytes / 2:
            parts.append(tuple(gathered))
            gathered = []
    return [*parts, tuple(gathered)] if gathered else parts


def size_of(part: Part) -> int:
    """Return a guess of a part's text, in bytes."""
    return sum(piece.size for piece in part)


def text_size(source: Source) -> int:
    """Return a guess of a source's text, in bytes; at least 1."""
    packed = source.file is not None and packing_of(source.file)
    return max(1, source.size * (_UNPACKED if packed else 1))


def _pieces(number: int, source: Source, part_bytes: int) -> Iterator[Piece]:
    size = text_size(source)
    if source.file is None or size <= part_bytes:
        yield Piece(source=number, window=WHOLE, size=size)
        return
    windows = _windows(source.file, size, part_bytes)
    for window in windows:
        yield Piece(source=number, window=window, size=size // len(windows))


def _windows(file: Path, size: int, part_bytes: int) -> list[Window]:
    kind = format_of(file)
    if kind == "parquet":
        groups = _row_groups(file)
        return _open_ended(range(0, groups, max(1, groups * part_bytes // size)))
    if kind == "txt":
        # A character is a byte at least, so a part has no more text than was asked for, but for the first document.
        step = max(1, part_bytes // DOCUMENT_LIMIT)
        return _open_ended(range(0, max(1, size // DOCUMENT_LIMIT), step))
    return _open_ended(range(0, size, part_bytes))


def _open_ended(firsts: range) -> list[Window]:
    """Return windows that begin at `firsts`; the last goes to the end, wherever that is."""
    stops = [*firsts[1:], None]
    return [Window(first=first, stop=stop) for first, stop in zip(firsts, stops, strict=True)] or [WHOLE]


def _row_groups(file: Path) -> int:
    """Count the row groups; a file that cannot be read is one, and its reader says what is wrong."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            return max(1, int(table.num_row_groups))
    except (pa.ArrowException, OSError):
        return 1
