"""Old checkpoints go when a newer one is complete, and only those that nobody asked to keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.run.checkpoints import checkpoint_steps
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.retention import finished_steps, most_more, retire, spare, superfluous, sweep_retired


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


def test_a_deletion_that_was_cut_short_is_finished_by_the_next_attempt(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    for step in (5, 10):
        paths.checkpoint(step).mkdir(parents=True)
        (paths.checkpoint(step) / "shard").write_bytes(b"weights")
    retired = retire(paths.checkpoint(5))
    sweep_retired(paths)
    assert retired is not None
    assert not retired.exists()
    assert [path.name for path in paths.checkpoints.iterdir()] == ["step-10"]


@pytest.mark.parametrize(
    ("steps", "keep", "keep_every", "found"),
    [
        ([10, 20, 30], 3, None, [10]),
        ([10, 20, 30], 2, None, [10, 20]),
        # The newest stays until the coming one is complete, also where only one is kept.
        ([10, 20, 30], 1, None, [10, 20]),
        ([10], 1, None, []),
        ([], 1, None, []),
        ([10, 20, 30], 0, None, []),
        ([10, 20, 30], 2, 10, []),
    ],
)
def test_what_may_go_before_a_save_is_what_would_go_after_it_but_never_the_newest(
    steps: list[int], keep: int, keep_every: int | None, found: list[int]
) -> None:
    assert spare(steps, 40, keep=keep, keep_every=keep_every) == found


@pytest.mark.parametrize(
    ("steps", "coming", "keep", "keep_every", "more"),
    [
        ([], [10, 20, 30, 40, 50], 3, None, 4),  # three are kept while a fourth is written
        ([], [10, 20], 3, None, 2),
        ([10, 20, 30], [40, 50], 3, None, 1),
        ([], [10, 20, 30, 40, 50], 0, None, 5),
        ([], [10, 20, 30, 40, 50], 1, 20, 3),  # 20 stays for good, 40 is the newest, 50 is written
        ([10, 20, 30, 40], [50, 60], 1, None, 1),  # even where many go, the first save comes before that
        ([10], [], 3, None, 0),
    ],
)
def test_most_checkpoints_are_there_while_the_last_is_written(
    steps: list[int], coming: list[int], keep: int, keep_every: int | None, more: int
) -> None:
    assert most_more(steps, coming, keep=keep, keep_every=keep_every) == more
