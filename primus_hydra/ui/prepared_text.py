"""What a preparation made and how a run reads it, and token counts, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from primus_hydra.data.output import FAULTS_FILE, PREFIXES, Manifest, SourceCount
from primus_hydra.data.tokenizer import PREPARED_FOLDER

_SOURCES: Final = 20


def prepared_lines(folder: Path, made: Manifest) -> Iterator[str]:
    """Yield what a prepared folder holds, what was passed over, and the words that train on it."""
    yield f"{folder}: {made.documents:,} documents, {made.tokens:,} tokens, {made.text_bytes / 1e6:,.1f} MB of text"
    for name, size in made.splits.items():
        if size.documents:
            yield f"  {name:<10} {size.documents:>14,} documents {size.tokens:>18,} tokens"
    if made.faults:
        yield f"Passed over: {made.faults:,} records or files that cannot be used ({folder / FAULTS_FILE})."
    yield f"Train on it: {' '.join(training_words(folder, made))}"


def training_words(folder: Path, made: Manifest) -> list[str]:
    """Return the overrides by which a run trains on a prepared folder."""
    if made.layout == "stream":
        return ["data=stream", f"data.path={folder}"]
    words = ["data=megatron", f"data.path={folder / PREFIXES['train']}"]
    if made.splits["validation"].documents:
        words.append(f"data.validation_path={folder / PREFIXES['validation']}")
    return [*words, "tokenizer=hf", f"tokenizer.path={folder / PREPARED_FOLDER}"]


def count_lines(sources: Sequence[SourceCount]) -> Iterator[str]:
    """Yield a line for each source, the largest first and not all of many, and their sum."""
    ranked = sorted(sources, key=lambda one: -one.tokens)
    yield f"{'documents':>14}  {'tokens':>18}  {'bytes a token':>13}  source"
    for one in ranked[:_SOURCES]:
        yield _row(one, one.name)
    if more := ranked[_SOURCES:]:
        yield _row(_sum(more), f"{len(more):,} smaller ones")
    yield _row(_sum(sources), "all")
    if faults := sum(one.faults for one in sources):
        yield f"Passed over: {faults:,} records or files that cannot be used."


def _row(one: SourceCount, name: str) -> str:
    each = f"{one.text_bytes / one.tokens:.2f}" if one.tokens and one.text_bytes else "-"
    return f"{one.documents:>14,}  {one.tokens:>18,}  {each:>13}  {name}"


def _sum(sources: Sequence[SourceCount]) -> SourceCount:
    return SourceCount(
        name="",
        documents=sum(one.documents for one in sources),
        tokens=sum(one.tokens for one in sources),
        text_bytes=sum(one.text_bytes for one in sources),
        faults=sum(one.faults for one in sources),
    )
