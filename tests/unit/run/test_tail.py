"""The end of a file, whatever its lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.run import tail
from primus_hydra.run.tail import last_lines


@given(
    lines=st.lists(st.binary(max_size=700).filter(lambda line: b"\n" not in line), max_size=30),
    count=st.integers(1, 12),
    ended=st.booleans(),
)
def test_the_last_lines_are_those_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], count: int, ended: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "log"
    content = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    path.write_bytes(content)
    whole = content.split(b"\n")

    assert last_lines(path, count) == (whole[:-1] if whole[-1] == b"" else whole)[-count:]


def test_what_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert [last_lines(tmp_path / name, 3) for name in ("absent", "pipe", "")] == [[], [], []]


def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_LONGEST_BYTES", 10_000)
    (tmp_path / "log").write_bytes(b"x" * 50_000)

    assert last_lines(tmp_path / "log", 2) == [b"x" * 10_000]
