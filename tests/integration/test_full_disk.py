"""A disk without room for the next checkpoint, with the real command on a small file system."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from primus_hydra.run.checkpoints import checkpoint_steps, complete_steps
from primus_hydra.run.paths import RunPaths
from tests.integration.command import Command

pytestmark = pytest.mark.ranks

# A checkpoint takes 2.0 MiB under torchtitan and 1.8 under Megatron.
ONE_FITS = "4100k"


def mount(folder: Path, *options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)], check=True)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one checkpoint and a part of the next."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("cannot be had here: mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        mount(folder, f"size={ONE_FITS}")
    except subprocess.CalledProcessError:
        pytest.skip("cannot be had here: this container may not mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_saves_without_room_are_skipped_and_told_and_the_run_goes_on_once_there_is_room(
    small: Path, tmp_path: Path
) -> None:
    command, paths = Command(tmp_path), RunPaths(small / "full")
    settings = ("data=mock", f"run.dir={small}", "run.name=full", "training.steps=6", "checkpoint.keep=1")

    refused = command.run(*settings, "checkpoint.every=1", "checkpoint.keep=0")
    assert refused.code == 3, refused.output
    assert "9.58 MiB are needed and 4.00 MiB are free" in refused.output
    assert not paths.root.exists()

    ended = command.run(*settings, "checkpoint.every=2")
    assert ended.code == 3, ended.output
    assert ended.output.count("WARNING: no checkpoint at step 4: ") == 1
    assert "step 6 could not be saved: 2.03 MiB are needed and 1." in ended.output
    assert checkpoint_steps(paths) == complete_steps(paths) == [2]
    told = command.run("task=runs", "task.run=full", f"run.dir={small}", tiny=False).output
    assert "not saved:    no checkpoint at step 4: " in told

    mount(small, "remount", "size=16m")
    again = command.run(*settings, "checkpoint.every=2")
    assert again.code == 0, again.output
    assert "going on from the checkpoint at step 2" in again.output
    assert complete_steps(paths) == [6]


def test_a_save_that_fills_the_disk_leaves_the_one_before_and_the_space_that_it_took(
    small: Path, tmp_path: Path
) -> None:
    command, paths = Command(tmp_path), RunPaths(small / "full")
    settings = ("backend=megatron", "data=mock", f"run.dir={small}", "run.name=full", "training.steps=3")
    (small / "of-others").write_bytes(b"x" * 1024**2)

    ended = command.run(*settings, "checkpoint.every=1", "checkpoint.leave_free_gib=null")

    assert ended.code == 3, ended.output
    assert "WARNING: no checkpoint at step 2: the disk filled up (rank 0: " in ended.output
    assert "step 3 could not be saved: rank 0: " in ended.output
    assert "step 1 is the newest that is saved" in ended.output
    assert checkpoint_steps(paths) == complete_steps(paths) == [1]
    assert sorted(path.name for path in paths.checkpoints.iterdir()) == ["step-1"]
    assert shutil.disk_usage(small).free > 1024**2
