"""What a run does with a save that the disk has no room for, and that all ranks do the same."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from primus_hydra.config.schema.training import CheckpointConfig
from primus_hydra.errors import HostError
from primus_hydra.run.checkpoints import checkpoint_steps
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.space import folder_bytes
from primus_hydra.run.unsaved import read_unsaved
from primus_hydra.runtime import save_room
from primus_hydra.runtime.save_room import SaveRoom, StatePart

KIB = 1024
SIZE = 100 * KIB
FULL = OSError(errno.ENOSPC, "No space left on device")


class Disk:
    """A disk of a size that holds one run; its checkpoints take 100 KiB each."""

    def __init__(self, root: Path, size: int) -> None:
        self.paths = RunPaths(root)
        self.size = size

    def free(self, folder: Path) -> int:
        return self.size - folder_bytes(self.paths.root)

    def write(self, step: int, *, complete: bool = True, size: int = SIZE) -> None:
        folder = self.paths.checkpoint(step)
        folder.mkdir(parents=True)
        (folder / "shard").write_bytes(b"x" * size)
        if complete:
            write_manifest(folder, step)

    @property
    def steps(self) -> list[int]:
        return checkpoint_steps(self.paths)

    @property
    def note(self) -> str:
        note = read_unsaved(self.paths.attempt(1).unsaved)
        return note.describe() if note else ""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk(tmp_path, 1000 * KIB)
    monkeypatch.setattr(save_room, "free_bytes", found.free)
    # The run's own logs would need more than this disk has.
    monkeypatch.setattr(save_room, "LOGS_BYTES", 0)
    monkeypatch.setattr(save_room, "RANK_BYTES", 0)
    return found


def room_of(
    disk: Disk, gather: Callable[[Any], list[Any]] = lambda mine: [mine], rank: int = 0, **settings: Any
) -> SaveRoom:
    context: Any = SimpleNamespace(paths=disk.paths, attempt=1, rank=rank, is_main=rank == 0)
    return SaveRoom(context, CheckpointConfig(**{"keep": 3, **settings}), gather)


def test_without_any_knowledge_of_the_size_a_save_is_tried(disk: Disk) -> None:
    disk.size = 0
    assert room_of(disk).admits(10, last=False)


def test_the_size_of_the_first_save_is_the_sum_over_different_parts(disk: Disk) -> None:
    parts = [StatePart(name=name, tensor_bytes=400 * KIB, tensors=0) for name in ("a", "b", "b")]
    room = room_of(disk, lambda mine: parts if isinstance(mine, StatePart) else [mine])
    assert room.unmeasured
    room.measure(parts[0])
    assert not room.unmeasured
    disk.size = 801 * KIB
    # It would fit to the byte, and leave nothing for anything else.
    assert not room.admits(10, last=False)
    assert "0.79 MiB are needed and 0.78 MiB are free" in disk.note
    disk.size = 820 * KIB
    assert room.admits(10, last=False)


def test_later_saves_are_judged_by_the_size_of_the_one_before(disk: Disk) -> None:
    room = room_of(disk)
    room.measure(StatePart(name="a", tensor_bytes=2000 * KIB, tensors=0))
    disk.write(10)
    room.completed(10)
    disk.size = folder_bytes(disk.paths.root) + 150 * KIB
    assert room.admits(20, last=False)
    disk.size = folder_bytes(disk.paths.root) + 90 * KIB
    assert not room.admits(20, last=False)


def test_a_skipped_save_is_told_once_until_one_succeeds(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.write(10)
    room, disk.size = room_of(disk), 150 * KIB
    caplog.set_level("WARNING")
    assert [room.admits(step, last=False) for step in (20, 30)] == [False, False]
    assert [record.message.count("no checkpoint at step 20") for record in caplog.records] == [1]
    assert disk.note.startswith("no checkpoint at steps 20 to 30: ")
    assert disk.note.endswith("; the newest one is at step 10")

    disk.size = 1000 * KIB
    assert room.admits(40, last=False)
    disk.write(40)
    assert room.succeeded(40, None, last=False)
    room.completed(40)
    assert disk.note == ""
    assert caplog.records[-1].message == "step 40 is saved, the first since step 20 was skipped"


def test_the_last_save_fails_in_words_and_may_use_what_is_left_for_others(disk: Disk) -> None:
    disk.write(10)
    room = room_of(disk, leave_free_gib=1.0)
    assert not room.admits(20, last=False)
    assert room.admits(20, last=True)
    disk.size = 150 * KIB
    with pytest.raises(HostError, match=r"step 20 could not be saved: .* are needed and .* are free") as caught:
        room.admits(20, last=True)
    assert "step 10 is the newest that is saved" in str(caught.value)
    assert disk.steps == [10]


def test_nothing_is_looked_at_where_that_is_switched_off(disk: Disk) -> None:
    disk.write(10)
    room, disk.size = room_of(disk, leave_free_gib=None), 0
    assert not room.unmeasured
    assert room.admits(20, last=False)
    assert room.admits(20, last=True)


def test_what_retention_would_delete_anyway_gives_way_the_oldest_first_and_no_more_than_needed(disk: Disk) -> None:
    for step in (10, 20, 30):
        disk.write(step)
    disk.size = folder_bytes(disk.paths.root) + 50 * KIB
    assert room_of(disk, keep=2).admits(40, last=False)
    assert disk.steps == [20, 30]


def test_nothing_gives_way_where_it_would_not_be_enough(disk: Disk) -> None:
    for step in (10, 20):
        disk.write(step, size=10 * KIB if step == 10 else SIZE)
    disk.size = folder_bytes(disk.paths.root) + 50 * KIB
    assert not room_of(disk, keep=2).admits(30, last=False)
    assert disk.steps == [10, 20]


def test_the_last_good_checkpoint_never_gives_way(disk: Disk) -> None:
    disk.write(10)
    room, disk.size = room_of(disk, keep=1), 150 * KIB
    assert not room.admits(20, last=False)
    assert disk.steps == [10]

    disk.write(20)
    (disk.paths.checkpoint(20) / "shard").write_bytes(b"damaged")
    disk.size = folder_bytes(disk.paths.root) + 50 * KIB
    assert not room.admits(30, last=False)
    assert disk.steps == [10, 20]


def test_what_deletions_and_saves_that_were_cut_off_left_goes_first(disk: Disk) -> None:
    disk.write(10)
    disk.write(5, complete=False)  # older than a good one: somebody may want to see it
    disk.write(20, complete=False)
    left = disk.paths.checkpoints / "superseded-3"
    left.mkdir()
    (left / "shard").write_bytes(b"x" * SIZE)
    disk.size = folder_bytes(disk.paths.root) - 50 * KIB
    assert room_of(disk).admits(30, last=False)
    assert disk.steps == [5, 10]
    assert not left.exists()


def test_a_save_that_runs_out_of_space_leaves_nothing_and_is_tried_again_later(disk: Disk) -> None:
    disk.write(10)
    disk.write(20, complete=False)
    assert room_of(disk).succeeded(20, FULL, last=False) is False
    assert disk.steps == [10]
    assert "the disk filled up (rank 0: [Errno 28] No space left on device)" in disk.note


def test_the_last_save_that_runs_out_of_space_ends_the_run_and_leaves_nothing(disk: Disk) -> None:
    disk.write(10)
    disk.write(20, complete=False)
    with pytest.raises(HostError, match=r"No space left on device \(the disk is full\)"):
        room_of(disk).succeeded(20, FULL, last=True)
    assert disk.steps == [10]


def test_another_failure_ends_the_run_and_what_it_wrote_stays_to_be_looked_at(disk: Disk) -> None:
    disk.write(20, complete=False)
    with pytest.raises(HostError, match="Input/output error"):
        room_of(disk).succeeded(20, OSError(errno.EIO, "Input/output error"), last=False)
    assert disk.steps == [20]


def test_an_error_that_lost_its_cause_on_the_way_is_known_by_the_disk(disk: Disk) -> None:
    disk.write(10)
    disk.write(20, complete=False, size=40 * KIB)
    disk.size = folder_bytes(disk.paths.root) + KIB
    assert room_of(disk).succeeded(20, RuntimeError("writing failed"), last=False) is False
    assert disk.steps == [10]


class Ranks:
    """Two ranks in threads; both must ask the same number of questions, or the test fails."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2, timeout=10)
        self._said: list[Any] = [None, None]

    def gather(self, rank: int) -> Callable[[Any], list[Any]]:
        def gathered(mine: Any) -> list[Any]:
            self._said[rank] = mine
            self._barrier.wait()
            everyone = list(self._said)
            self._barrier.wait()
            return everyone

        return gathered


@pytest.mark.parametrize("failing", [0, 1])
def test_all_ranks_give_up_and_skip_together(disk: Disk, failing: int) -> None:
    disk.write(10)
    disk.write(20, complete=False)
    ranks = Ranks()

    def run(rank: int) -> list[Any]:
        room = room_of(disk, ranks.gather(rank), rank, keep=1)
        room.measure(StatePart(name=str(rank), tensor_bytes=SIZE // 2, tensors=1))
        found: list[Any] = [room.succeeded(20, FULL if rank == failing else None, last=False)]
        disk.size = 150 * KIB
        found.append(room.admits(30, last=False))
        try:
            room.admits(40, last=True)
        except HostError as error:
            found.append(str(error))
        return found

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(run, range(2))
    assert first == second
    assert first[:2] == [False, False]
    assert "step 40 could not be saved" in first[2]
    assert disk.steps == [10]
    assert disk.note.startswith("no checkpoint at steps 20 to 30")


def test_free_space_that_cannot_be_found_out_stops_no_save(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.write(10)
    monkeypatch.setattr(save_room, "free_bytes", lambda folder: (_ for _ in ()).throw(OSError("stale file handle")))
    assert room_of(disk).admits(20, last=False)
