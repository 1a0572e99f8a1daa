"""The tokens of a whole corpus in one flat file, with the offset of each document: written streaming, read mapped.

A folder holds `tokens.bin` (uint16 or uint32, little endian), `offsets.bin` (int64, one more than documents) and
`meta.json`, which is written last and gives the sizes by which a damaged folder is told. `tokens.idx` makes
`FOLDER/tokens` the prefix of a Megatron indexed data set; it follows from the offsets, so a missing or damaged one is
written again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from primus_hydra.config.schema import TokenizerConfig
from primus_hydra.data.cache import Report
from primus_hydra.data.content_hash import FileHash, hash_text
from primus_hydra.data.corpus import Corpus
from primus_hydra.data.megatron_index import BrokenIndexError, read_index, write_index
from primus_hydra.data.problem_log import ProblemLog
from primus_hydra.data.tokenizer import TextTokenizer
from primus_hydra.errors import raise_all

_FORMAT: Final = "tokens-1"
_BATCH_CHARACTERS: Final = 1 << 20
_REPORT_EVERY_S: Final = 10.0
TOKENS_FILE: Final = "tokens.bin"
OFFSETS_FILE: Final = "offsets.bin"
META_FILE: Final = "meta.json"
INDEX_FILE: Final = "tokens.idx"


@dataclass(frozen=True, kw_only=True)
class TokenMeta:
    """What a folder of tokens holds, and what it was made from."""

    corpus_hash: str
    tokenizer_hash: str
    dtype: str
    documents: int
    tokens: int
    files: list[dict[str, str | int]]


@dataclass(frozen=True, kw_only=True)
class TokenFiles:
    """A folder of tokens, opened."""

    meta: TokenMeta
    tokens: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]


def tokens_key(corpus_hash: str, tokenizer: TextTokenizer, settings: TokenizerConfig) -> str:
    """Name the tokens in the cache by everything that decides their content."""
    begin = tokenizer.bos_id if settings.bos else None
    end = tokenizer.eos_id if settings.eos else None
    return hash_text(_FORMAT, corpus_hash, tokenizer.content_hash, str(begin), str(end))


def read_meta(folder: Path) -> TokenMeta | None:
    """Read what a folder holds; None if it is missing, or its files have not the sizes they should."""
    try:
        meta = TokenMeta(**json.loads((folder / META_FILE).read_text()))
        whole = (folder / TOKENS_FILE).stat().st_size == meta.tokens * np.dtype(meta.dtype).itemsize and (
            folder / OFFSETS_FILE
        ).stat().st_size == (meta.documents + 1) * 8
    except (OSError, ValueError, TypeError):
        return None
    return meta if whole else None


def is_whole_tokens(folder: Path) -> bool:
    """Whether a folder of tokens is there and whole."""
    return read_meta(folder) is not None


def open_tokens(folder: Path) -> TokenFiles | None:
    """Map a folder of tokens into memory; None if it is missing or damaged."""
    meta = read_meta(folder)
    if meta is None:
        return None
    tokens = np.memmap(folder / TOKENS_FILE, dtype=meta.dtype, mode="r", shape=(meta.tokens,))
    offsets = np.memmap(folder / OFFSETS_FILE, dtype="<i8", mode="r", shape=(meta.documents + 1,))
    return TokenFiles(meta=meta, tokens=tokens, offsets=offsets)


def ensure_index(folder: Path, report: Report) -> None:
    """Write `tokens.idx` where a whole folder lacks a sound one; `report` tells when that cannot be done.

    It is not needed to train on the folder, so one that may only be read serves as before. Several processes may write
    at once: the file appears in one go, and all of them write the same.
    """
    files = open_tokens(folder)
    if files is None or _is_sound_index(folder, files.meta):
        return
    draft = folder / f".{INDEX_FILE}.{secrets.token_hex(4)}"
    try:
        write_index(draft, files.offsets, files.meta.dtype)
        draft.replace(folder / INDEX_FILE)
    except OSError as error:
        report(f"tokens: no Megatron index beside them, {folder / INDEX_FILE} cannot be written: {error.strerror}")
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _is_sound_index(folder: Path, meta: TokenMeta) -> bool:
    try:
        index = read_index(folder / INDEX_FILE)
    except (OSError, BrokenIndexError):
        return False
    return index.documents == meta.documents and index.bin_bytes == meta.tokens * np.dtype(meta.dtype).itemsize


def write_tokens(
    folder: Path,
    corpus: Corpus,
    *,
    corpus_hash: str,
    files: Sequence[FileHash],
    tokenizer: TextTokenizer,
    settings: TokenizerConfig,
    text_bytes: int,
    report: Report,
) -> None:
    """Encode every document in order; `text_bytes` is the size of the text, for progress.

    Raises UserError if a file has become unreadable since it was scanned.
    """
    log = ProblemLog()
    dtype = token_dtype(tokenizer)
    texts = _with_progress(corpus.documents(log), text_bytes, report)
    with TokenWriter(folder, dtype) as writer:
        for ids in encoded(texts, tokenizer, settings):
            writer.add(ids)
    raise_all(log.problems)
    write_index(folder / INDEX_FILE, np.fromfile(folder / OFFSETS_FILE, dtype="<i8"), dtype)
    meta = TokenMeta(
        corpus_hash=corpus_hash,
        tokenizer_hash=tokenizer.content_hash,
        dtype=dtype,
        documents=writer.documents,
        tokens=writer.tokens,
        files=listing(files),
    )
    write_meta(folder, meta)


def write_meta(folder: Path, meta: TokenMeta) -> None:
    """Write what a folder holds, as the last of its files."""
    (folder / META_FILE).write_text(json.dumps(asdict(meta), indent=1))


def listing(files: Sequence[FileHash]) -> list[dict[str, str | int]]:
    """Return the files that tokens were made from, as plain data."""
    return [{"path": str(file.path), "size": file.size, "hash": file.digest} for file in files]


def token_dtype(tokenizer: TextTokenizer) -> str:
    """Return the narrowest type that holds every id of a tokenizer."""
    return "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"


def encoded(
    texts: Iterable[str], tokenizer: TextTokenizer, settings: TokenizerConfig
) -> Iterator[list[npt.NDArray[np.uint32]]]:
    """Yield the ids of documents in order, some documents at a time (never none)."""
    for batch in _batches(texts):
        yield list(tokenizer.encode(batch, bos=settings.bos, eos=settings.eos))


class TokenWriter:
    """Appends documents to the tokens and the offsets of a folder; without one it only counts."""

    def __init__(self, folder: Path | None, dtype: str) -> None:
        self._folder = folder
        self._dtype = dtype
        self._open = ExitStack()
        self._tokens: BinaryIO | None = None
        self._offsets: BinaryIO | None = None
        self.documents = 0
        self.tokens = 0

    def __enter__(self) -> TokenWriter:
        if self._folder is not None:
            self._tokens = self._open.enter_context((self._folder / TOKENS_FILE).open("wb"))
            self._offsets = self._open.enter_context((self._folder / OFFSETS_FILE).open("wb"))
            self._offsets.write(np.array([0], dtype="<i8").tobytes())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def add(self, ids: Sequence[npt.NDArray[np.uint32]]) -> None:
        """Append the ids of at least one document."""
        ends = self.tokens + np.cumsum([len(document) for document in ids], dtype="<i8")
        if self._tokens is not None and self._offsets is not None:
            # file.write and not ndarray.tofile: the latter hides the errno of a full disk.
            self._tokens.write(np.concatenate(ids).astype(self._dtype).tobytes())
            self._offsets.write(ends.tobytes())
        self.documents, self.tokens = self.documents + len(ids), int(ends[-1])


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _with_progress(texts: Iterable[str], total: int, report: Report) -> Iterator[str]:
    done, last = 0, time.monotonic()
    for text in texts:
        yield text
        done += len(text)
        if time.monotonic() - last > _REPORT_EVERY_S:
            last = time.monotonic()
            report(f"tokens: {min(done / max(total, 1), 1.0):.0%} of the text encoded")
