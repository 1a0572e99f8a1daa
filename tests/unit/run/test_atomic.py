"""Files are replaced whole."""

import os
import stat

import pytest

from primus_hydra.run.atomic import read_json, write_json, write_text


def test_a_written_object_is_read_back(tmp_path):
    write_json(tmp_path / "deep" / "a.json", {"name": "日本", "n": 1})
    assert read_json(tmp_path / "deep" / "a.json") == {"name": "日本", "n": 1}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    write_text(path, "old")

    def full_disk(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_value_that_json_lacks_is_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})


@pytest.mark.parametrize("text", ["", '{"a": 1', "[1]", "\x00"])
def test_a_torn_or_foreign_file_reads_as_nothing(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert read_json(tmp_path / "a.json") is None
    assert read_json(tmp_path / "absent.json") is None


def test_the_file_has_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644
