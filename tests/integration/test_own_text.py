"""A text of the user's own trains in each format; what cannot be read is named before anything starts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.command import Command

pytestmark = pytest.mark.ranks

LINES = [f"Line {number} of a text that somebody wrote, with {number * 7} words in mind." for number in range(400)]


def as_txt(folder: Path) -> Path:
    file = folder / "mine.txt"
    file.write_text("\n".join(LINES), encoding="utf-8")
    return file


def as_gz(folder: Path) -> Path:
    file = folder / "mine.txt.gz"
    file.write_bytes(gzip.compress("\n".join(LINES).encode()))
    return file


def as_jsonl(folder: Path) -> Path:
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES), encoding="utf-8")
    return file


def as_parquet(folder: Path) -> Path:
    import pyarrow
    from pyarrow import parquet

    file = folder / "mine.parquet"
    parquet.write_table(pyarrow.table({"text": LINES}), file)
    return file


@pytest.mark.parametrize("write", [as_txt, as_gz, as_jsonl, as_parquet])
def test_a_text_of_the_users_own_trains(write: Callable[[Path], Path], tmp_path: Path) -> None:
    command = Command(tmp_path)
    file = write(tmp_path)

    ended = command.run("data=text", f"data.path={file.name}", "run.name=mine", "training.steps=3")

    assert ended.code == 0, ended.output
    assert sorted(command.losses("mine")) == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b"", "empty"),
        ("binary.txt", b"\x00\x01\x02" * 50, "binary"),
        ("broken.jsonl", b'{"text": "a"}\n{nonsense\n', "broken.jsonl:2"),
        ("other.jsonl", b'{"body": "a"}\n', "body"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_first(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)

    ended = Command(tmp_path).run("data=text", f"data.path={name}", "run.name=mine", "training.steps=3")

    assert ended.code == 2, ended.output
    assert name in ended.output
    assert said in ended.output


def test_a_missing_file_is_named_first(tmp_path: Path) -> None:
    ended = Command(tmp_path).run("data=text", "data.path=nowhere/*.txt", "run.name=mine")

    assert ended.code == 2
    assert "nowhere" in ended.output
    assert not (tmp_path / "runs").exists()
