"""The end of an attempt is told whatever the disk does, and what it says to type next leads to the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.errors import HostError, Problem
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import RunState, read_state
from primus_hydra.tasks.ending import broken_launch, command_of_run, note_last_state, replaced, status_of
from primus_hydra.tasks.run_folder import run_paths


@pytest.mark.parametrize("swept", [(), ("optimizer.lr=1e-3",)])
def test_the_command_of_a_run_leads_to_its_folder_also_for_a_point_of_a_sweep(
    swept: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = ["platform=cpu", "run.name=mine", "optimizer.lr=1e-3"]
    composed = compose(Request(overrides=overrides, swept=swept))
    typed = [word for word in command_of_run(run_paths(composed), composed) if "=" in word]

    assert run_paths(compose(Request(overrides=typed))) == run_paths(composed)
    assert (typed == overrides) is not bool(swept)


def test_a_value_is_replaced_wherever_and_however_it_was_set() -> None:
    words = ["++run.name=a", "training.steps=3", "run.name=b"]

    assert replaced(words, {"run.name": "c"}) == ["training.steps=3", "run.name=c"]


def test_a_last_state_that_the_disk_does_not_take_is_told_and_nothing_else_fails(tmp_path: Path) -> None:
    state = RunState(status="failed", step=3, steps=9, attempt=1, started_at=1.0, updated_at=2.0)
    said: list[str] = []
    (tmp_path / "file").write_text("")

    note_last_state(RunPaths(tmp_path / "run"), state, said.append)
    assert (read_state(tmp_path / "run" / "state.json"), said) == (state, [])
    note_last_state(RunPaths(tmp_path / "file"), state, said.append)
    assert "still says that the run is at work: " in said[0]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (HostError(Problem(key="MASTER_ADDR", what="taken", hint="take another")), 3, "MASTER_ADDR: taken"),
        (KeyError("x"), 4, "'x'"),
        (RuntimeError(), 4, "RuntimeError"),
    ],
)
def test_a_launch_that_broke_ends_its_attempt_with_the_code_of_the_command(
    error: Exception, code: int, words: str
) -> None:
    result = broken_launch(error)

    assert (result.exit_code, result.message) == (code, f"the launch failed: {words}")
    assert status_of(result) == "failed"
