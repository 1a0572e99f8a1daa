"""Old checkpoints go when a newer one is complete, and only those that nobody asked to keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.run.checkpoints import checkpoint_steps
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.retention import finished_steps, retire, superfluous


@pytest.mark.parametrize(
    ("steps", "keep", "keep_every", "gone"),
    [
        ([10, 20, 30, 40], 2, None, [10, 20]),
        ([10, 20, 30, 40], 1, None, [10, 20, 30]),
        ([10, 20, 30, 40], 0, None, []),
        ([10, 20, 30, 40], 9, None, []),
        ([10, 20, 30, 40], 1, 20, [10, 30]),
        ([10, 20, 30, 40], 2, 25, [10, 20]),
        ([40], 1, None, []),
        # The newest is known to be complete, whoever else knows it.
        ([], 1, None, []),
        ([10], 1, None, [10]),
        # Steps beyond the newest are another attempt's.
        ([30, 50, 60], 1, None, [30]),
    ],
)
def test_the_newest_and_the_multiples_stay(
    steps: list[int], keep: int, keep_every: int | None, gone: list[int]
) -> None:
    assert superfluous(steps, 40, keep=keep, keep_every=keep_every) == gone


def test_only_a_finished_save_counts(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    for step in (5, 10):
        paths.checkpoint(step).mkdir(parents=True)
        (paths.checkpoint(step) / "shard").write_bytes(b"weights")
    write_manifest(paths.checkpoint(5), 5)
    assert checkpoint_steps(paths) == [5, 10]
    assert finished_steps(paths) == [5]


def test_a_retired_checkpoint_is_none_any_more_but_still_has_its_files(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.checkpoint(5).mkdir(parents=True)
    (paths.checkpoint(5) / "shard").write_bytes(b"weights")
    retired = retire(paths.checkpoint(5))
    assert retired is not None
    assert (retired / "shard").read_bytes() == b"weights"
    assert "step-5" not in retired.name
    assert checkpoint_steps(paths) == []
    assert retire(paths.checkpoint(5)) is None


def test_what_an_earlier_deletion_left_is_in_nobodys_way(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    for content in (b"old", b"new"):
        paths.checkpoint(5).mkdir(parents=True)
        (paths.checkpoint(5) / "shard").write_bytes(content)
        retired = retire(paths.checkpoint(5))
    assert retired is not None
    assert (retired / "shard").read_bytes() == b"new"
