"""A full disk is said before a save, not during it, and known as one when it is met."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.space import checkpoint_bytes, folder_bytes, free_bytes, ran_out, space_problem


def have(monkeypatch: pytest.MonkeyPatch, *, total: int, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(total, total - free, free))


def test_enough_space_is_no_problem_even_for_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert space_problem(tmp_path / "not" / "yet", 1) is None


def test_too_little_space_names_both_amounts_and_what_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, total=10**12, free=3 * 1024**3)
    problem = space_problem(tmp_path / "checkpoints", 5 * 1024**3, " for two checkpoints")
    assert problem is not None
    assert problem.what == "5.00 GiB are needed and 3.00 GiB are free for two checkpoints"
    assert "run.dir=FOLDER" in (problem.hint or "")


def test_a_file_system_that_does_not_know_its_size_is_taken_to_have_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, total=0, free=0)
    assert free_bytes(tmp_path) is None
    assert space_problem(tmp_path, 10**15) is None


def test_a_checkpoint_is_as_large_as_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "step-3"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "shard").write_bytes(b"x" * 5000)
    assert checkpoint_bytes(folder) is None

    write_manifest(folder, 3)
    assert checkpoint_bytes(folder) == folder_bytes(folder) > 5000


class Gathered(Exception):
    """As torch's: it holds the errors of all ranks, each with its traceback."""

    def __init__(self, failures: dict[int, tuple[BaseException, str]]) -> None:
        self.failures = failures


def test_a_full_disk_is_known_behind_the_errors_that_it_makes() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    wrapped = RuntimeError("unexpected pos 704 vs 598")
    wrapped.__context__ = full
    assert ran_out(full)
    assert ran_out(OSError(errno.EDQUOT, "Disk quota exceeded"))
    assert ran_out(Gathered({1: (wrapped, "")}))
    # From another rank it comes without its cause.
    assert ran_out(Gathered({1: (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704"), "")}))


def test_another_error_is_no_full_disk() -> None:
    looped = RuntimeError("a")
    looped.__context__ = ValueError("b")
    looped.__context__.__context__ = looped
    assert not ran_out(looped)
    broken = OSError(errno.EIO, "Input/output error")
    assert not ran_out(broken)
    short = RuntimeError("unexpected pos 704 vs 598")
    short.__context__ = broken
    assert not ran_out(short)
