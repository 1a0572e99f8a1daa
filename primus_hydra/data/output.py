"""What a prepared folder holds, as its `data.json` says: a folder without one, or with other sizes, is not whole.

Two layouts. `stream`: the flat token files that every backend reads through `data=stream`, with the tables of the
splits. `megatron`: an indexed data set for each split (train, valid, test). Both hold the tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from primus_hydra.data.split import PartName

DataLayout = Literal["megatron", "stream"]
MANIFEST: Final = "data.json"
SPLIT_FOLDER: Final = "split"
FAULTS_FILE: Final = "problems.jsonl"
PREFIXES: Final[Mapping[PartName, str]] = {"train": "train", "validation": "valid", "test": "test"}
"""Names of the indexed data sets of the splits, as Megatron calls them."""
_FORMAT: Final = 1


@dataclass(frozen=True, kw_only=True)
class SplitSize:
    """How much one split holds."""

    documents: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class SourceCount:
    """What one file or shard gave."""

    name: str
    documents: int
    tokens: int
    text_bytes: int
    faults: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A prepared folder; `key` names everything that decides its content, `files` their sizes in bytes."""

    layout: DataLayout
    key: str
    corpus_hash: str
    tokenizer_hash: str
    vocab_size: int
    eos_id: int | None
    dtype: str
    documents: int
    tokens: int
    text_bytes: int
    faults: int
    splits: Mapping[PartName, SplitSize]
    sources: tuple[SourceCount, ...]
    files: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Manifest:
        """Read what `to_json` wrote; raises KeyError, TypeError or ValueError for anything else."""
        if data.pop("format") != _FORMAT:
            raise ValueError("another format")
        splits = {name: SplitSize(**size) for name, size in data.pop("splits").items()}
        return cls(splits=splits, sources=tuple(SourceCount(**one) for one in data.pop("sources")), **data)


def read_manifest(folder: Path) -> Manifest | None:
    """Return what a prepared folder says of itself; None if there is none, or its files have other sizes."""
    try:
        manifest = Manifest.from_json(json.loads((folder / MANIFEST).read_text()))
        whole = all((folder / name).stat().st_size == size for name, size in manifest.files.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return manifest if whole else None


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the size of each file below a folder, by its relative name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
