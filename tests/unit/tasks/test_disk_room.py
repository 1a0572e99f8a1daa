"""Too little room for what a run will save is refused before anything starts, and never by a wrong guess."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.count import parameter_count
from primus_hydra.errors import HostError
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.tasks.disk_room import refuse_too_little_room, room_problem
from tests.support import make_job

KNOWN = {"model.vocab_size": 512, "training.steps": 100, "checkpoint.every": 10}
ADAPTERS = {
    "torchtitan": "primus_hydra.backends.torchtitan.adapter.TorchTitanAdapter",
    "megatron": "primus_hydra.backends.megatron.adapter.MegatronAdapter",
}


def have(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10**15, 10**15 - free, free))


def asks(tmp_path: Path, **overrides: Any) -> bool:
    return room_problem(RunPaths(tmp_path / "run"), make_job({**KNOWN, **overrides})) is not None


@pytest.mark.parametrize("backend", ADAPTERS)
def test_a_new_run_needs_room_for_the_kept_ones_and_the_one_being_written(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"backend._target_": ADAPTERS[backend], "backend.name": backend}
    each = 12 * parameter_count(make_job(KNOWN).model)
    have(monkeypatch, 4 * each)
    assert not asks(tmp_path, **chosen)
    have(monkeypatch, 4 * each - 1)
    assert asks(tmp_path, **chosen)
    assert not asks(tmp_path, **chosen, **{"checkpoint.keep": 2})
    assert not asks(tmp_path, **chosen, **{"training.steps": 30})


def test_both_numbers_and_the_ways_out_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, 1024**2)
    with pytest.raises(HostError) as caught:
        refuse_too_little_room(RunPaths(tmp_path / "run"), make_job(KNOWN))
    (problem,) = caught.value.problems
    assert (
        "MiB are needed and 1.00 MiB are free: the run will hold up to 4 more checkpoints of at least" in problem.what
    )
    for way in ("checkpoint.keep", "run.dir=FOLDER", "checkpoint.leave_free_gib=null"):
        assert way in (problem.hint or "")


def test_a_run_that_has_saved_is_judged_by_what_it_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = RunPaths(tmp_path / "run")
    for step in (10, 20, 30):
        paths.checkpoint(step).mkdir(parents=True)
        (paths.checkpoint(step) / "shard").write_bytes(b"x" * 10_000)
        write_manifest(paths.checkpoint(step), step)
    have(monkeypatch, 11_000)  # one more, and the oldest goes
    assert not asks(tmp_path)
    have(monkeypatch, 9_000)
    assert asks(tmp_path)
    assert not asks(tmp_path, **{"training.steps": 30})
    # Its old checkpoints are set aside, and stay.
    have(monkeypatch, 50_000)
    assert asks(tmp_path, resume="never")


@pytest.mark.parametrize(
    "overrides",
    [
        {"checkpoint.enable": False},
        {"checkpoint.leave_free_gib": None},
        {"backend.trainer": "somewhere.Trainer"},
        {"backend.config": {"optimizer": {"state_dtype": "bfloat16"}}},
        {"backend._target_": "primus_hydra.runtime.contracts.BackendAdapter"},
    ],
    ids=str,
)
def test_what_is_not_known_or_not_asked_for_refuses_nothing(
    overrides: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, 0)
    if "backend._target_" in overrides:  # an adapter that says nothing of its checkpoints
        monkeypatch.setattr("primus_hydra.runtime.contracts.BackendAdapter.__abstractmethods__", frozenset())
    assert not asks(tmp_path, **overrides)
