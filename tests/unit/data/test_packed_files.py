"""Packed files read like plain ones; one that breaks off or is damaged is a problem, never a shorter text."""

import gzip

import pytest
import zstandard

from primus_hydra.data.file_readers import read_file
from primus_hydra.data.packed_files import open_bytes, skip
from tests.unit.data.support import read

TEXT = "".join(f"zipped ✓ {number}\n" for number in range(20_000))


def test_a_zst_file_of_several_frames_reads_like_a_plain_one(tmp_path):
    half = len(TEXT) // 2
    file = tmp_path / "A.TXT.ZST"
    file.write_bytes(zstandard.compress(TEXT[:half].encode()) + zstandard.compress(TEXT[half:].encode()))

    assert read(read_file, file, "text") == ([TEXT], [])


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_a_stream_is_entered_at_any_byte(tmp_path, name):
    pack = {"a.txt": bytes, "a.txt.gz": gzip.compress, "a.txt.zst": zstandard.compress}[name]
    (tmp_path / name).write_bytes(pack(TEXT.encode()))

    for place in (0, 1, 200_000, len(TEXT.encode()) - 3):
        with open_bytes(tmp_path / name) as stream:
            skip(stream, place)
            assert stream.read() == TEXT.encode()[place:]


@pytest.mark.parametrize("spoil", [lambda data: data[:-9], lambda data: b"plain text", lambda data: data[:90] + b"x"])
def test_a_zst_file_that_breaks_off_or_is_damaged_is_a_problem(tmp_path, spoil):
    file = tmp_path / "a.txt.zst"
    file.write_bytes(spoil(zstandard.compress(TEXT.encode())))

    problem = read(read_file, file, "text")[1][0]

    assert "not a whole zstd file" in problem.what
    assert problem.hint == f"zstd -t {file}"


def test_lines_that_are_not_utf8_are_named_one_by_one_and_the_others_are_read(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text": "one"}\n{"text": "caf\xe9"}\n{"text": "two"}\n')

    texts, problems = read(read_file, file, "text")

    assert texts == ["one", "two"]
    assert [(problem.where, problem.what) for problem in problems] == [(f"{file}:2", "is not UTF-8 text")]
