import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from primus_hydra.data.file_readers import read_file, read_jsonl, read_parquet, read_txt
from primus_hydra.data.problem_log import ProblemLog
from tests.unit.data.support import read


def write(path, data: bytes):
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def test_a_txt_file_is_one_document_with_its_line_ends(tmp_path):
    file = write(tmp_path / "a.txt", "één\r\ntwo\n".encode())
    assert read(read_txt, file) == (["één\r\ntwo\n"], [])


def test_a_byte_order_mark_is_stripped(tmp_path):
    assert read(read_txt, write(tmp_path / "a.txt", b"\xef\xbb\xbfhello"))[0] == ["hello"]
    assert read(read_jsonl, write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": "hi"}\n'), "text") == (["hi"], [])


@pytest.mark.parametrize("name", ["a.txt.gz", "A.TXT.GZ"])
def test_a_gzipped_txt_reads_like_a_plain_one(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(gzip.compress("zipped ✓".encode()))
    assert read(read_file, file, "text") == (["zipped ✓"], [])


def test_a_large_txt_becomes_bounded_documents_cut_at_line_ends(tmp_path):
    text = "".join(f"line {number} ü\n" for number in range(1000)) + "x" * 500
    documents, problems = read(
        lambda path, log: read_txt(path, log, limit=100), write(tmp_path / "a.txt", text.encode())
    )
    assert "".join(documents) == text
    assert not problems
    assert max(map(len, documents)) <= 100
    assert all(document.endswith("\n") for document in documents if "line" in document and "x" not in document)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"text\0more", "NUL"),
        (b"caf\xe9 au lait", "not UTF-8"),
        (b"half a character \xe2\x82", "not UTF-8"),
        ("wide".encode("utf-16"), "not UTF-8"),
    ],
)
def test_a_binary_txt_is_a_problem(tmp_path, data, what):
    documents, problems = read(read_txt, write(tmp_path / "a.txt", data))
    assert documents == []
    assert what in problems[0].what
    assert problems[0].where == str(tmp_path / "a.txt")


def test_utf16_text_gets_the_command_that_converts_it(tmp_path):
    _, problems = read(read_txt, write(tmp_path / "a.txt", "wide".encode("utf-16")))
    assert "iconv -f UTF-16" in str(problems[0].hint)


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-12], lambda data: b"plain text", lambda data: data[:20] + b"x" * 30]
)
def test_a_corrupt_gz_is_a_problem(tmp_path, spoil):
    file = tmp_path / "a.txt.gz"
    file.write_bytes(spoil(gzip.compress(b"some text that is zipped" * 100)))
    assert "not a whole gzip file" in read(read_txt, file)[1][0].what


def test_jsonl_gives_the_text_of_each_record_and_skips_blank_lines(tmp_path):
    lines = [json.dumps({"text": "één\nzwei"}), "", json.dumps({"other": 1, "text": "three"})]
    data = "\n".join(lines).encode()
    for name in ("a.jsonl", "a.jsonl.gz"):
        assert read(read_file, write(tmp_path / name, data), "text") == (["één\nzwei", "three"], [])


def test_every_bad_jsonl_line_is_named_and_the_good_ones_are_read(tmp_path):
    lines = ['{"text": "ok"}', "{broken", '{"txet": "x", "id": 1}', "[1]", '{"text": 7}', '{"text": "\\ud800"}']
    file = write(tmp_path / "a.jsonl", "\n".join(lines).encode())
    documents, problems = read(read_jsonl, file, "text")
    assert documents == ["ok"]
    assert [problem.where for problem in problems] == [f"{file}:{number}" for number in (2, 3, 4, 5, 6)]
    assert [problem.what.split(":")[0] for problem in problems] == [
        "is not JSON",
        "has no field 'text'",
        "is not a JSON object but list",
        "field 'text' is int, not text",
        "field 'text' holds half of a surrogate pair, which is not text",
    ]
    assert problems[1].hint == "it has: txet, id; did you mean txet?"


def test_a_file_full_of_bad_lines_does_not_flood_the_user(tmp_path):
    log = ProblemLog(limit=3)
    assert list(read_jsonl(write(tmp_path / "a.jsonl", b"no\n" * 100), "text", log)) == []
    assert len(log.problems) == 4
    assert "stopped after 3" in log.problems[-1].what


def test_parquet_gives_its_text_column_without_nulls(tmp_path):
    pq.write_table(pa.table({"id": [1, 2, 3], "body": ["a", None, "ç"]}), tmp_path / "a.parquet")
    assert read(read_file, tmp_path / "a.parquet", "body") == (["a", "ç"], [])


def test_parquet_without_the_column_names_those_it_has(tmp_path):
    pq.write_table(pa.table({"id": [1], "Text": ["a"]}), tmp_path / "a.parquet")
    _, problems = read(read_parquet, tmp_path / "a.parquet", "text")
    assert problems[0].hint == "it has: id, Text; did you mean Text?"


def test_parquet_with_numbers_or_garbage_is_a_problem(tmp_path):
    pq.write_table(pa.table({"text": [1]}), tmp_path / "a.parquet")
    assert "is int64, not text" in read(read_parquet, tmp_path / "a.parquet", "text")[1][0].what
    write(tmp_path / "b.parquet", b"PAR1 nothing of the kind")
    assert "cannot be read as parquet" in read(read_parquet, tmp_path / "b.parquet", "text")[1][0].what
