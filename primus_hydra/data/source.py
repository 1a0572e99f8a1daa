"""A part of a corpus that is read from its start, or from somewhere within: one file, or one shard of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from primus_hydra.data.problem_log import ProblemLog


@dataclass(frozen=True, kw_only=True)
class Window:
    """A stretch of a source, from `first` to before `stop` (None: to its end).

    Counted in what its format can be entered by: bytes of the (unpacked) text where records are lines, row groups of
    parquet, documents of a plain text. Windows that meet give every document once.
    """

    first: int = 0
    stop: int | None = None

    def reaches(self, place: int) -> bool:
        """Whether a place at or after `first` lies within."""
        return self.stop is None or place < self.stop


WHOLE: Final = Window()


class Read(Protocol):
    """Reads a source."""

    def __call__(self, log: ProblemLog, *, window: Window = WHOLE) -> Iterator[str]:
        """Yield the documents of a window in a fixed order and note what is wrong in `log`."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """`file` is set where the source is one file that can be read in windows, `size` (bytes) where it is known."""

    name: str
    read: Read
    file: Path | None = None
    size: int = 0
