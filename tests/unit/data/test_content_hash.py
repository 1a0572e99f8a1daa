import os
import time

import pytest

from primus_hydra.data import content_hash
from primus_hydra.data.content_hash import hash_file, hash_files, hash_text
from primus_hydra.errors import UserError


def test_texts_are_told_apart_by_their_borders():
    assert hash_text("ab", "c") != hash_text("a", "bc")


def test_a_hash_is_of_the_bytes_not_of_the_name(tmp_path):
    (tmp_path / "a").write_bytes(b"same")
    (tmp_path / "b").write_bytes(b"same")
    first, second = hash_files([tmp_path / "a", tmp_path / "b"], memo=tmp_path / "memo.json")
    assert first.digest == second.digest == hash_file(tmp_path / "a")
    assert first.size == 4


def test_a_large_settled_file_is_read_once_and_again_when_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(content_hash, "_REMEMBER_FROM", 1)
    read = []
    monkeypatch.setattr(content_hash, "hash_file", lambda path: read.append(path) or f"{len(read)}")
    file, memo = tmp_path / "a", tmp_path / "deep" / "memo.json"
    file.write_bytes(b"text")
    hour_ago = time.time() - 3600
    os.utime(file, (hour_ago, hour_ago))
    assert [hash_files([file], memo=memo)[0].digest for _ in range(2)] == ["1", "1"]
    os.utime(file, (hour_ago + 1, hour_ago + 1))
    assert hash_files([file], memo=memo)[0].digest == "2"


def test_a_file_written_just_now_is_not_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(content_hash, "_REMEMBER_FROM", 1)
    (tmp_path / "a").write_bytes(b"old!")
    before = hash_files([tmp_path / "a"], memo=tmp_path / "memo.json")
    (tmp_path / "a").write_bytes(b"new!")
    assert hash_files([tmp_path / "a"], memo=tmp_path / "memo.json") != before


def test_a_damaged_memo_is_no_obstacle(tmp_path):
    (tmp_path / "a").write_bytes(b"text")
    (tmp_path / "memo.json").write_text("{half")
    assert hash_files([tmp_path / "a"], memo=tmp_path / "memo.json")[0].size == 4


def test_a_memo_that_cannot_be_written_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr(content_hash, "_REMEMBER_FROM", 1)
    (tmp_path / "a").write_bytes(b"text")
    os.utime(tmp_path / "a", (0, 0))
    assert hash_files([tmp_path / "a"], memo=tmp_path / "a" / "memo.json")[0].size == 4


def test_every_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError) as caught:
        hash_files([tmp_path / "x", tmp_path / "y"], memo=tmp_path / "memo.json")
    assert len(caught.value.problems) == 2
