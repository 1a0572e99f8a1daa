"""One part of a corpus as tokens on disk: encoded by one process, whole or not there at all.

A folder of a part holds the tokens and the offsets of its documents, as every folder of tokens does, and
`outcome.json`. It takes its name when all of that has reached the disk.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from primus_hydra.config.schema import TokenizerConfig
from primus_hydra.data.corpus import Corpus, documents_of
from primus_hydra.data.parts import Part, Piece
from primus_hydra.data.problem_log import Fault, FaultTally
from primus_hydra.data.token_files import TokenWriter, encoded, token_dtype
from primus_hydra.data.tokenizer import TextTokenizer

OUTCOME_FILE: Final = "outcome.json"
_TELL_EVERY_S: Final = 0.5
Tell = Callable[[int, int], None]
"""Told now and then how far a part is: bytes of text, tokens."""


@dataclass(frozen=True, kw_only=True)
class PieceOutcome:
    """What a window of a source gave; `text_bytes` are those of its documents, lines of faults count within it."""

    source: int
    documents: int
    tokens: int
    text_bytes: int
    lines: int
    fault_count: int
    faults: tuple[Fault, ...]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PieceOutcome:
        """Read plain data."""
        return cls(**{**data, "faults": tuple(Fault(**fault) for fault in data["faults"])})


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Everything that decides which tokens a corpus becomes."""

    corpus: Corpus
    tokenizer: TextTokenizer
    settings: TokenizerConfig

    def encode(self, part: Part, folder: Path | None, tell: Tell) -> list[PieceOutcome]:
        """Encode a part into `folder`, or only count it; what is wrong with the text is in the outcomes.

        Raises OSError when the disk is full, and leaves nothing of the part behind.
        """
        if folder is None:
            return _Encoding(self, part, tell).run(None)
        draft = folder.with_name(f".{folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            outcomes = _Encoding(self, part, tell).run(draft)
            (draft / OUTCOME_FILE).write_text(json.dumps([asdict(outcome) for outcome in outcomes]))
            for file in draft.iterdir():
                _sync(file)
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return outcomes


def read_outcomes(folder: Path) -> list[PieceOutcome] | None:
    """Return what a part gave; None if it is not there."""
    try:
        return [PieceOutcome.from_json(entry) for entry in json.loads((folder / OUTCOME_FILE).read_text())]
    except (OSError, ValueError, TypeError, KeyError):
        return None


class _Encoding:
    """One part on its way to tokens."""

    def __init__(self, encoder: Encoder, part: Part, tell: Tell) -> None:
        self._encoder = encoder
        self._part = part
        self._tell = tell
        self._told_at = time.monotonic()
        self._text_bytes = 0

    def run(self, folder: Path | None) -> list[PieceOutcome]:
        with TokenWriter(folder, token_dtype(self._encoder.tokenizer)) as writer:
            return [self._piece(piece, writer) for piece in self._part]

    def _piece(self, piece: Piece, writer: TokenWriter) -> PieceOutcome:
        log, before = FaultTally(), (writer.documents, writer.tokens, self._text_bytes)
        source = self._encoder.corpus.sources[piece.source]
        texts = self._measured(documents_of(source, log, window=piece.window))
        for ids in encoded(texts, self._encoder.tokenizer, self._encoder.settings):
            writer.add(ids)
            self._say(writer.tokens)
        return PieceOutcome(
            source=piece.source,
            documents=writer.documents - before[0],
            tokens=writer.tokens - before[1],
            text_bytes=self._text_bytes - before[2],
            lines=log.lines,
            fault_count=log.count,
            faults=tuple(log.faults),
        )

    def _measured(self, texts: Iterator[str]) -> Iterator[str]:
        for text in texts:
            self._text_bytes += len(text) if text.isascii() else len(text.encode())
            yield text

    def _say(self, tokens: int) -> None:
        if time.monotonic() - self._told_at > _TELL_EVERY_S:
            self._told_at = time.monotonic()
            self._tell(self._text_bytes, tokens)


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
