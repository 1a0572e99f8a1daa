"""The corpus that `data` names: sources in a fixed order, the files behind them, and a hash of its content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from primus_hydra.config.schema import DataConfig
from primus_hydra.data.content_hash import FileHash, hash_text
from primus_hydra.data.file_list import list_files
from primus_hydra.data.file_readers import DOCUMENT_LIMIT, format_of, read_file, read_txt
from primus_hydra.data.hf_dataset import open_hf
from primus_hydra.data.problem_log import ProblemLog
from primus_hydra.data.source import WHOLE, Read, Source, Window
from primus_hydra.data.stdlib_modules import stdlib_files, stdlib_root
from primus_hydra.errors import raise_all

_FORMAT = "corpus-1"


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Sources to read in order; `settings` is what beside the files' bytes decides which text comes out."""

    sources: tuple[Source, ...]
    files: tuple[Path, ...]
    settings: tuple[str, ...]
    passed_over: int = 0

    def documents(self, log: ProblemLog) -> Iterator[str]:
        """Yield every document that is not blank."""
        for source in self.sources:
            yield from documents_of(source, log)

    def content_hash(self, files: Sequence[FileHash]) -> str:
        """Identify the text: the same bytes in the same order read the same way, wherever the files lie."""
        return hash_text(_FORMAT, str(DOCUMENT_LIMIT), *self.settings, *(file.digest for file in files))


@dataclass(frozen=True, kw_only=True)
class SourceSize:
    """What a full reading found in one source; bytes are those of the text, not of the file."""

    documents: int
    text_bytes: int


def documents_of(source: Source, log: ProblemLog, *, window: Window = WHOLE) -> Iterator[str]:
    """Yield the documents of one source, or of a window of it, without blank ones."""
    return (text for text in source.read(log, window=window) if text and not text.isspace())


def open_corpus(data: DataConfig) -> Corpus:
    """Find the sources of a corpus; raises UserError for what `check_data` would report."""
    if data.kind == "python_stdlib":
        files, _ = stdlib_files(stdlib_root())
        sources = [file_source(file, partial(read_txt, file)) for file in files]
        return Corpus(sources=tuple(sources), files=tuple(files), settings=("txt",))
    if data.kind == "hf":
        opened = open_hf(data)
        return Corpus(sources=opened.sources, files=opened.files, settings=("hf", data.split, data.text_key))
    found = list_files(data.path)
    raise_all(found.problems)
    return Corpus(
        sources=tuple(file_source(file, partial(read_file, file, data.text_key)) for file in found.files),
        files=tuple(found.files),
        settings=("text", data.text_key, *(format_of(file) or "" for file in found.files)),
        passed_over=found.passed_over,
    )


def file_source(file: Path, read: Read) -> Source:
    """Return the source that one file is."""
    return Source(name=str(file), read=read, file=file, size=file.stat().st_size)


def scan(corpus: Corpus, log: ProblemLog | None = None) -> list[SourceSize]:
    """Read everything once; raises UserError with all that is wrong in the content, file by file.

    With a `FaultTally` for a log what is wrong is counted there, and nothing is raised for it.
    """
    log = ProblemLog() if log is None else log
    sizes = []
    for source in corpus.sources:
        sizes.append(_size(source, log))
        if log.full:
            break
    raise_all(log.problems)
    return sizes


def _size(source: Source, log: ProblemLog) -> SourceSize:
    documents = text_bytes = 0
    for text in documents_of(source, log):
        documents += 1
        text_bytes += len(text) if text.isascii() else len(text.encode())
    return SourceSize(documents=documents, text_bytes=text_bytes)
