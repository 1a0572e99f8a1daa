"""Which documents are held out for validation and test, and the table by which samples are found in each part.

With enough documents, whole ones at equal distances are held out. With so few that one would be far more than the
wanted fraction, the end of the longest document is held out instead. What is held out for a test is taken from the
rest, so a test part changes nothing in the validation part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

SplitName = Literal["train", "validation"]
PartName = Literal["train", "validation", "test"]
SPLITS: Final[tuple[SplitName, ...]] = ("train", "validation")
PARTS: Final[tuple[PartName, ...]] = ("train", "validation", "test")
_COUNTS_FILE: Final = "split.json"
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One split: where each of its documents starts and ends in the flat token file."""

    starts: Int64s
    ends: Int64s

    @property
    def tokens(self) -> int:
        """Tokens in all documents of the split."""
        return int((self.ends - self.starts).sum())

    @property
    def pair_ends(self) -> Int64s:
        """Cumulative number of (input, label) pairs before each document, and after the last; the first is 0.

        A document of n tokens has n - 1 pairs: no label crosses into the next document.
        """
        pairs = np.maximum(self.ends - self.starts - 1, 0)
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(pairs, dtype=np.int64)])


@dataclass(frozen=True, kw_only=True)
class PartCounts:
    """How much one split holds."""

    documents: int
    tokens: int
    pairs: int


def split_documents(offsets: Int64s, fraction: float) -> dict[SplitName, Part]:
    """Divide documents, given as n + 1 offsets; validation is empty only where `fraction` is 0 or there is no text."""
    train, validation = _hold_out(_all_of(offsets), fraction)
    return {"train": train, "validation": validation}


def divide(offsets: Int64s, *, validation: float, test: float) -> dict[PartName, Part]:
    """Divide documents in three; the fractions are of the whole, and leave something to train on."""
    rest, held = _hold_out(_all_of(offsets), validation)
    train, tested = _hold_out(rest, test / (1 - validation))
    return {"train": train, "validation": held, "test": tested}


def _all_of(offsets: Int64s) -> Part:
    return Part(starts=np.asarray(offsets[:-1], dtype=np.int64), ends=np.asarray(offsets[1:], dtype=np.int64))


def _hold_out(part: Part, fraction: float) -> tuple[Part, Part]:
    """Return what is left of a part, and what is held out of it."""
    starts, ends = part.starts, part.ends
    count = round(len(starts) * fraction)
    held = np.zeros(len(starts), dtype=bool)
    if fraction > 0 and len(starts) > 0:
        if count in (0, len(starts)):
            return _tail_of_longest(starts, ends, fraction)
        held[(2 * np.arange(count) + 1) * len(starts) // (2 * count)] = True
    return Part(starts=starts[~held], ends=ends[~held]), Part(starts=starts[held], ends=ends[held])


def _tail_of_longest(starts: Int64s, ends: Int64s, fraction: float) -> tuple[Part, Part]:
    longest = int(np.argmax(ends - starts))
    held = min(int(np.ceil(int((ends - starts).sum()) * fraction)), int(ends[longest] - starts[longest]) // 2)
    cut = int(ends[longest]) - held
    train_ends = ends.copy()
    train_ends[longest] = cut
    tail = Part(starts=np.array([cut], dtype=np.int64), ends=ends[longest : longest + 1])
    return Part(starts=starts, ends=train_ends), tail


def write_split(folder: Path, parts: Mapping[SplitName, Part] | Mapping[PartName, Part]) -> None:
    """Write the tables of all splits and their counts."""
    counts = {}
    for name, part in parts.items():
        pair_ends = part.pair_ends
        (folder / f"{name}.starts.bin").write_bytes(part.starts.astype("<i8").tobytes())
        (folder / f"{name}.pairs.bin").write_bytes(pair_ends.astype("<i8").tobytes())
        counts[name] = asdict(PartCounts(documents=len(part.starts), tokens=part.tokens, pairs=int(pair_ends[-1])))
    (folder / _COUNTS_FILE).write_text(json.dumps(counts))


def read_counts(folder: Path) -> dict[PartName, PartCounts] | None:
    """Return how much each split holds; None if the tables are missing or have not the sizes they should."""
    try:
        tree = json.loads((folder / _COUNTS_FILE).read_text())
        counts = {name: PartCounts(**tree[name]) for name in PARTS if name in SPLITS or name in tree}
        whole = all(
            (folder / f"{name}.starts.bin").stat().st_size == part.documents * 8
            and (folder / f"{name}.pairs.bin").stat().st_size == (part.documents + 1) * 8
            for name, part in counts.items()
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return counts if whole else None


def is_whole_split(folder: Path) -> bool:
    """Whether the tables of a split are there and whole."""
    return read_counts(folder) is not None


def map_split(folder: Path, name: PartName, documents: int) -> tuple[Int64s, Int64s]:
    """Map the `starts` and `pair_ends` of a split with at least one document into memory."""
    starts = np.memmap(folder / f"{name}.starts.bin", dtype="<i8", mode="r", shape=(documents,))
    pair_ends = np.memmap(folder / f"{name}.pairs.bin", dtype="<i8", mode="r", shape=(documents + 1,))
    return starts, pair_ends
