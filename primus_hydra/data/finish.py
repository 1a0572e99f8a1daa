"""From all tokens of a corpus to a prepared folder, which appears whole and in one step.

Everything is made in a folder inside that of the growing files and takes its place by one renaming. A finish that was
cut short is made anew from the growing files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from primus_hydra.data.content_hash import FileHash
from primus_hydra.data.growing import FAULTS, OFFSETS, TOKENS, Growing
from primus_hydra.data.megatron_index import bin_file, index_file, write_index
from primus_hydra.data.output import (
    FAULTS_FILE,
    MANIFEST,
    PREFIXES,
    SPLIT_FOLDER,
    DataLayout,
    Manifest,
    SourceCount,
    SplitSize,
    sizes_of,
)
from primus_hydra.data.part_tokens import PieceOutcome
from primus_hydra.data.split import Part, PartName, divide, write_split
from primus_hydra.data.token_files import (
    INDEX_FILE,
    OFFSETS_FILE,
    TOKENS_FILE,
    TokenMeta,
    listing,
    token_dtype,
    write_meta,
)
from primus_hydra.data.tokenizer import PREPARED_FOLDER, TextTokenizer

_WHOLE: Final = "whole"
_BLOCK: Final = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The folder that is asked for; `validation` and `test` are fractions of the documents."""

    output: Path
    layout: DataLayout
    validation: float
    test: float


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What the tokens were made from; `names` are those of the corpus's sources, in order."""

    corpus_hash: str
    files: Sequence[FileHash]
    names: Sequence[str]
    tokenizer: TextTokenizer


def finish(growing: Growing, wanted: Wanted, origin: Origin) -> Manifest:
    """Make the prepared folder out of the grown files; what `wanted.output` holds is replaced at the very end.

    Raises OSError when the disk is full; what has grown stays.
    """
    whole = growing.folder / _WHOLE
    _take_back(growing, whole)
    whole.mkdir()
    dtype = token_dtype(origin.tokenizer)
    offsets = np.fromfile(growing.folder / OFFSETS, dtype="<i8")
    parts = divide(offsets, validation=wanted.validation, test=wanted.test)
    _copy_tokenizer(origin.tokenizer.folder, whole / PREPARED_FOLDER)
    if growing.grown.faults:
        shutil.copyfile(growing.folder / FAULTS, whole / FAULTS_FILE)
    if wanted.layout == "stream":
        _stream(whole, growing, origin, offsets, parts)
    else:
        _megatron(whole, growing, dtype, parts)
    manifest = _manifest(whole, growing, wanted, origin, parts)
    (whole / MANIFEST).write_text(json.dumps(manifest.to_json(), indent=1))
    for path in whole.rglob("*"):
        _sync(path)
    if wanted.output.exists():
        shutil.rmtree(wanted.output)
    whole.replace(wanted.output)
    _sync(wanted.output.parent)
    return manifest


def _take_back(growing: Growing, whole: Path) -> None:
    """Undo a finish that was cut short."""
    moved = whole / TOKENS_FILE
    if moved.exists() and not (growing.folder / TOKENS).exists():
        moved.replace(growing.folder / TOKENS)
    shutil.rmtree(whole, ignore_errors=True)


def _stream(whole: Path, growing: Growing, origin: Origin, offsets: np.ndarray, parts: Mapping[PartName, Part]) -> None:
    dtype = token_dtype(origin.tokenizer)
    shutil.copyfile(growing.folder / OFFSETS, whole / OFFSETS_FILE)
    write_index(whole / INDEX_FILE, offsets, dtype)
    (whole / SPLIT_FOLDER).mkdir()
    write_split(whole / SPLIT_FOLDER, parts)
    meta = TokenMeta(
        corpus_hash=origin.corpus_hash,
        tokenizer_hash=origin.tokenizer.content_hash,
        dtype=dtype,
        documents=growing.grown.documents,
        tokens=growing.grown.tokens,
        files=listing(origin.files),
    )
    write_meta(whole, meta)
    (growing.folder / TOKENS).replace(whole / TOKENS_FILE)


def _megatron(whole: Path, growing: Growing, dtype: str, parts: Mapping[PartName, Part]) -> None:
    """Write an indexed data set for each split that holds documents."""
    size = growing.grown.tokens
    tokens = np.memmap(growing.folder / TOKENS, dtype=dtype, mode="r", shape=(size,)) if size else np.zeros(0, dtype)
    for name, part in parts.items():
        if not len(part.starts):
            continue
        with bin_file(whole / PREFIXES[name]).open("wb") as stream:
            for first, stop in _runs(part):
                for at in range(first, stop, _BLOCK):
                    stream.write(tokens[at : min(stop, at + _BLOCK)].tobytes())
        lengths = np.concatenate([[0], part.ends - part.starts])
        write_index(index_file(whole / PREFIXES[name]), np.cumsum(lengths, dtype=np.int64), dtype)


def _runs(part: Part) -> list[tuple[int, int]]:
    """Return the stretches of tokens that a split has, documents that touch joined."""
    breaks = np.flatnonzero(part.starts[1:] != part.ends[:-1]) + 1
    firsts, stops = np.concatenate([[0], breaks]), np.concatenate([breaks, [len(part.starts)]])
    return [(int(part.starts[a]), int(part.ends[b - 1])) for a, b in zip(firsts, stops, strict=True)]


def _manifest(
    whole: Path, growing: Growing, wanted: Wanted, origin: Origin, parts: Mapping[PartName, Part]
) -> Manifest:
    assert growing.plan is not None
    return Manifest(
        layout=wanted.layout,
        key=growing.plan.key,
        corpus_hash=origin.corpus_hash,
        tokenizer_hash=origin.tokenizer.content_hash,
        vocab_size=origin.tokenizer.vocab_size,
        eos_id=origin.tokenizer.eos_id,
        dtype=token_dtype(origin.tokenizer),
        documents=growing.grown.documents,
        tokens=growing.grown.tokens,
        text_bytes=growing.grown.text_bytes,
        faults=growing.grown.faults,
        splits={name: SplitSize(documents=len(part.starts), tokens=part.tokens) for name, part in parts.items()},
        sources=tuple(count_sources(growing.outcomes(), origin.names)),
        files=sizes_of(whole),
    )


def count_sources(outcomes: Sequence[PieceOutcome], names: Sequence[str]) -> list[SourceCount]:
    """Add up what the pieces of each source gave, in the order of the corpus."""
    table = np.zeros((len(names), 4), dtype=np.int64)
    for one in outcomes:
        table[one.source] += (one.documents, one.tokens, one.text_bytes, one.fault_count)
    return [
        SourceCount(name=name, documents=row[0], tokens=row[1], text_bytes=row[2], faults=row[3])
        for name, row in zip(names, table.tolist(), strict=True)
    ]


def _copy_tokenizer(folder: Path, target: Path) -> None:
    target.mkdir()
    for file in sorted(folder.glob("*.json")):
        shutil.copyfile(file, target / file.name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
