"""One file to its documents: txt, jsonl and parquet, the first two also packed. Memory is bounded for any file size.

What a reader finds wrong goes to the `ProblemLog`; a reader never raises for the content of a file. It refuses bytes
that are not UTF-8 text, and strips a byte-order mark. Each reader can begin within a file, at a `Window`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TextIO

from primus_hydra.config.suggest import did_you_mean
from primus_hydra.data.packed_files import DAMAGED, open_bytes, packing_of, skip
from primus_hydra.data.problem_log import ProblemLog
from primus_hydra.data.source import WHOLE, Window

FileFormat = Literal["txt", "jsonl", "parquet"]
FORMATS: Final[dict[str, FileFormat]] = {
    ".txt": "txt",
    ".txt.gz": "txt",
    ".txt.zst": "txt",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".jsonl.zst": "jsonl",
    ".parquet": "parquet",
}
# A longer txt file becomes several documents: bounds memory, and lets the tokenizer work on them side by side.
DOCUMENT_LIMIT: Final = 1 << 20
_LINE_LIMIT: Final = 1 << 28
_PARQUET_BATCH: Final = 256
_BOM: Final = b"\xef\xbb\xbf"
_CONVERT: Final = "convert it: iconv -f ENCODING -t UTF-8"
_UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")


def format_of(path: Path) -> FileFormat | None:
    """Return the format that a file's extension names, None if it names none that we read."""
    name = path.name.lower()
    return next((kind for ending, kind in FORMATS.items() if name.endswith(ending)), None)


def read_file(path: Path, text_key: str, log: ProblemLog, *, window: Window = WHOLE) -> Iterator[str]:
    """Yield the documents of a file whose extension `format_of` knows; `text_key` names the field of a record."""
    kind = format_of(path)
    if kind == "parquet":
        return read_parquet(path, text_key, log, window=window)
    if kind == "jsonl":
        return read_jsonl(path, text_key, log, window=window)
    return read_txt(path, log, window=window)


def read_txt(path: Path, log: ProblemLog, *, limit: int = DOCUMENT_LIMIT, window: Window = WHOLE) -> Iterator[str]:
    """Yield the text of a file: one document, or several of at most `limit` characters, cut at line ends."""
    with _content_problems(path, log), _open_text(path) as stream:
        for piece in islice(_pieces(stream, limit), window.first, window.stop):
            if "\0" in piece:
                raise _Binary
            yield piece


def read_jsonl(path: Path, text_key: str, log: ProblemLog, *, window: Window = WHOLE) -> Iterator[str]:
    """Yield the text of each record; a line that is not a record with `text_key` is a problem, and reading goes on.

    Lines are numbered from the beginning of the window, and counted in the log.
    """
    number = 0
    with _content_problems(path, log), open_bytes(path) as stream:
        try:
            for number, line in enumerate(_lines(stream, window), start=1):
                if log.full:
                    return
                text = _line_text(line, text_key, path, number, log)
                if text is not None:
                    yield text
        finally:
            log.lines += number


def read_parquet(path: Path, text_key: str, log: ProblemLog, *, window: Window = WHOLE) -> Iterator[str]:
    """Yield the values of column `text_key`; needs pyarrow, whose absence the caller has checked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            if _has_text_column(table.schema_arrow, text_key, path, log):
                groups = list(range(table.num_row_groups))[window.first : window.stop]
                for batch in table.iter_batches(batch_size=_PARQUET_BATCH, row_groups=groups, columns=[text_key]):
                    yield from (text for text in batch.column(0).to_pylist() if text is not None)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        log.add(f"cannot be read as parquet: {_first_line(error)}", where=str(path))


class _Binary(Exception):
    """A NUL byte, which text does not have."""


def _open_text(path: Path) -> TextIO:
    # newline="\n": line ends stay as they are in the file.
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="strict", newline="\n")


@contextmanager
def _content_problems(path: Path, log: ProblemLog) -> Iterator[None]:
    """Turn what reading raises into problems of this file."""
    try:
        yield
    except _Binary:
        log.add("is binary: it holds NUL bytes", where=str(path), hint=_utf16_hint(path))
    except UnicodeDecodeError:
        log.add("is not UTF-8 text", where=str(path), hint=_utf16_hint(path) or _CONVERT)
    except DAMAGED as error:
        program = packing_of(path)
        log.add(f"is not a whole {program} file: {_first_line(error)}", where=str(path), hint=f"{program} -t {path}")
    except OSError as error:
        log.add(f"cannot be read: {error.strerror or error}", where=str(path))


def _utf16_hint(path: Path) -> str | None:
    with path.open("rb") as raw:
        start = raw.read(2)
    return "it looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8" if start in _UTF16_BOMS else None


def _pieces(stream: TextIO, limit: int) -> Iterator[str]:
    rest = ""
    while True:
        text = rest + stream.read(limit + 1 - len(rest))
        if len(text) <= limit:
            if text:
                yield text
            return
        cut = text.rfind("\n", 0, limit) + 1 or limit
        yield text[:cut]
        rest = text[cut:]


def _lines(stream: BinaryIO, window: Window) -> Iterator[bytes]:
    """Yield the lines that begin within a window; the first line of a file comes without a byte-order mark."""
    place = _enter(stream, window.first)
    while window.reaches(place) and (line := stream.readline(_LINE_LIMIT)):
        yield line.removeprefix(_BOM) if place == 0 else line
        place += len(line)


def _enter(stream: BinaryIO, first: int) -> int:
    """Go to the first line that begins at byte `first` or later; return the place."""
    if first == 0:
        return 0
    skip(stream, first - 1)
    place = first - 1
    while rest := stream.readline(_LINE_LIMIT):
        place += len(rest)
        if rest.endswith(b"\n"):
            break
    return place


def _line_text(line: bytes, text_key: str, path: Path, number: int, log: ProblemLog) -> str | None:
    try:
        record = line.decode()
    except UnicodeDecodeError:
        log.add("is not UTF-8 text", where=str(path), line=number, hint=_utf16_hint(path) or _CONVERT)
        return None
    if not record or record.isspace():
        return None
    return _record_text(record, text_key, str(path), number, log)


def _record_text(text: str, text_key: str, where: str, number: int, log: ProblemLog) -> str | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "a jsonl file has one JSON object per line"
        log.add(f"is not JSON: {_first_line(error)}", where=where, line=number, hint=hint)
        return None
    if not isinstance(record, dict):
        log.add(f"is not a JSON object but {type(record).__name__}", where=where, line=number)
        return None
    return _field_text(record, text_key, where, number, log)


def _field_text(record: dict[str, Any], text_key: str, where: str, number: int, log: ProblemLog) -> str | None:
    text = record.get(text_key)
    if text_key not in record:
        log.add(f"has no field {text_key!r}", where=where, line=number, hint=key_hint(text_key, list(record)))
    elif not isinstance(text, str):
        log.add(f"field {text_key!r} is {type(text).__name__}, not text", where=where, line=number)
    elif not _is_encodable(text):
        log.add(f"field {text_key!r} holds half of a surrogate pair, which is not text", where=where, line=number)
    else:
        return text
    return None


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_text_column(schema: Any, text_key: str, path: Path, log: ProblemLog) -> bool:
    import pyarrow as pa

    if text_key not in schema.names:
        log.add(f"has no column {text_key!r}", where=str(path), hint=key_hint(text_key, schema.names))
        return False
    kind = schema.field(text_key).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return True
    log.add(f"column {text_key!r} is {kind}, not text", where=str(path))
    return False


def key_hint(text_key: str, names: list[str]) -> str:
    """Return what to set `data.text_key` to, given the names that a record has."""
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    near = did_you_mean(text_key, names)
    return f"it has: {listed or 'nothing'}; {near or 'set data.text_key to one of them'}"


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
