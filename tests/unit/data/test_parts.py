"""However a corpus is cut, its parts give every document once and in order."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.config.schema import DataConfig
from primus_hydra.data import file_readers, parts
from primus_hydra.data.corpus import documents_of, open_corpus
from primus_hydra.data.file_readers import read_jsonl
from primus_hydra.data.parts import Piece, cut
from primus_hydra.data.problem_log import FaultTally, ProblemLog
from primus_hydra.data.source import Window

LINES = [json.dumps({"text": f"document {number} ü" + "x" * (number % 7)}, ensure_ascii=False) for number in range(200)]


def write_all(folder):
    text = ("\n".join(LINES) + "\n").encode()
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + text)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(text[:3000].rpartition(b"\n")[0]))
    (folder / "c.jsonl.zst").write_bytes(
        zstandard.compress(text[:1000]) + zstandard.compress(text[1000:2500].rpartition(b"\n")[0])
    )
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(100)]}), folder / "d.parquet", row_group_size=7)
    (folder / "e.txt").write_text("".join(f"line {n}\n" for n in range(300)))
    (folder / "f.txt").write_text("small")


@pytest.mark.parametrize("part_bytes", [40, 333, 1500, 10**9])
def test_the_parts_of_files_of_every_format_give_the_documents_of_the_corpus(tmp_path, monkeypatch, part_bytes):
    # Small documents, so that a small plain text is cut as well.
    monkeypatch.setattr(file_readers.read_txt, "__kwdefaults__", {**file_readers.read_txt.__kwdefaults__, "limit": 100})
    monkeypatch.setattr(parts, "DOCUMENT_LIMIT", 100)
    write_all(tmp_path)
    corpus = open_corpus(DataConfig(kind="text", path=str(tmp_path)))
    whole = list(corpus.documents(ProblemLog()))

    made = cut(corpus.sources, part_bytes)
    pieces = [Piece.from_row(json.loads(json.dumps(piece.to_row()))) for part in made for piece in part]
    read = [
        text
        for piece in pieces
        for text in documents_of(corpus.sources[piece.source], ProblemLog(), window=piece.window)
    ]

    assert read == whole
    assert len(whole) > 350
    assert len(made) == (1 if part_bytes == 10**9 else len(made))
    assert part_bytes > 1500 or len(made) > 5


@given(st.lists(st.text(alphabet="ab\n{", max_size=12), max_size=8), st.integers(1, 9))
def test_windows_that_meet_read_each_line_once_and_count_it(tmp_path_factory, texts, size):
    file = tmp_path_factory.mktemp("lines") / "a.jsonl"
    data = "\n".join(texts).encode()
    file.write_bytes(data)
    whole = FaultTally()
    list(read_jsonl(file, "text", whole))

    found, line = [], 0
    for first in range(0, len(data) + 1, size):
        log = FaultTally()
        list(read_jsonl(file, "text", log, window=Window(first=first, stop=first + size)))
        found += [(fault.line + line, fault.reason) for fault in log.faults]
        line += log.lines

    assert found == [(fault.line, fault.reason) for fault in whole.faults]
    assert line == whole.lines == len(data.splitlines(keepends=True))
