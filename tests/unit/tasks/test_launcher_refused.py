"""`hydra/launcher=submitit` with tasks that submit nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.app import run_command
from tests.unit.tasks.made_task import Trained


@pytest.mark.parametrize("task", ["plan", "runs", "help", "patches"])
def test_a_task_that_only_looks_ignores_the_launcher(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_command(["platform=cpu", "hydra/launcher=submitit", f"task={task}"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("multirun", [[], ["-m", "training.seed=1,2"]])
def test_a_task_that_would_run_on_the_login_node_is_refused(
    multirun: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("primus_hydra.app.make_task", lambda node: Trained(None))

    assert run_command(["platform=cpu", "hydra/launcher=submitit", *multirun]) == 2
    assert "task=trained runs where it is typed" in capsys.readouterr().err
    assert run_command(["platform=cpu", *multirun]) == 0


def test_a_sweeper_needs_a_task_that_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["-m", "platform=cpu", "hydra/sweeper=optuna", "task=plan", "optimizer.lr=interval(0,1)"]) == 2
    assert "task=plan measures nothing" in capsys.readouterr().err


def test_a_sweeper_that_is_not_installed_is_named_with_the_way_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["-m", "platform=cpu", "hydra/sweeper=nevergrad", "optimizer.lr=interval(0,1)"]) == 2
    told = capsys.readouterr().err
    assert "there is no sweeper 'nevergrad'" in told
    assert "primus-hydra[optuna]" in told


def test_a_wrong_key_of_the_sweeper_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["-m", "platform=cpu", "hydra/sweeper=optuna", "hydra.sweeper.n_trial=3", "optimizer.lr=interval(0,1)"]

    assert run_command(argv) == 2
    told = capsys.readouterr().err
    assert "n_trial" in told
    assert "Traceback" not in told
