"""A text of the user's own trains; what cannot be read is named before anything starts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.integration.command import Command

pytestmark = pytest.mark.ranks


def test_a_text_of_the_users_own_trains_by_the_command(tmp_path: Path) -> None:
    command = Command(tmp_path)
    lines = [f"Line {number} of a text that somebody wrote, with {number * 7} words in mind." for number in range(400)]
    (tmp_path / "mine.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))

    ended = command.run("data=text", "data.path=mine.txt.gz", "run.name=mine", "training.steps=3")

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
