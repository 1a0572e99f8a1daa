"""A run goes on with the configuration that it saved, in its own folder, wherever and however it is resumed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from primus_hydra.config.build import dump_job
from primus_hydra.config.compose import Request, compose
from primus_hydra.config.composed import Composed
from primus_hydra.errors import ExitCode, UserError
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import RunCommand, write_command
from primus_hydra.tasks import contract
from primus_hydra.tasks.run_folder import refuse_other_training, run_paths
from primus_hydra.tasks.runs_resume import resume_run, saved_job
from tests.unit.tasks.made_runs import hold, make_run


def saved(composed: Composed, *, folder: Path | None = None) -> RunPaths:
    """Save what an attempt saves of a composed job, and return where."""
    paths = run_paths(composed)
    paths.attempt(1).root.mkdir(parents=True)
    paths.config.write_text(dump_job(composed.job))
    command = RunCommand(
        argv=("python", "-m", "primus_hydra", *composed.overrides),
        overrides=tuple(composed.overrides),
        swept=tuple(composed.swept),
        folder=str(folder or Path.cwd()),
    )
    write_command(paths.attempt(1).command, command)
    return paths


def composed(*overrides: str, swept: tuple[str, ...] = ()) -> Composed:
    return compose(Request(overrides=["platform=cpu", *overrides], swept=swept))


@pytest.mark.parametrize(
    ("overrides", "swept"),
    [
        (("optimizer.lr=1",), ()),
        (("run.name=mine",), ()),
        (("run.name=ein Name/mit allem",), ()),
        (("run.name=s", "optimizer.lr=1e-3"), ("optimizer.lr=1e-3",)),
        (("run.name=f", "run.fresh=true"), ()),
    ],
)
def test_the_saved_job_leads_to_its_folder_and_is_the_same_training(
    overrides: tuple[str, ...], swept: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = composed(*overrides, swept=swept)
    paths = saved(before)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    after = saved_job(paths)

    assert run_paths(after) == paths
    assert after.job.run.name in (before.job.run.name, paths.root.name)
    assert dataclasses.replace(after.job, run=before.job.run) == before.job
    refuse_other_training(paths, after.tree, "auto")
    assert f"run.dir={tmp_path / 'runs'}" in after.overrides  # as one would type it from here


def test_a_run_that_was_made_fresh_goes_on_in_the_folder_that_it_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [saved(composed("run.name=f", "run.fresh=true")) for _ in range(2)]

    assert [path.root.name for path in paths] == ["f", "f-2"]
    assert [run_paths(saved_job(path)) for path in paths] == paths
    assert saved_job(paths[1]).overrides[-1] == "run.name=f-2"


def test_a_run_that_was_moved_goes_on_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = saved(composed("run.name=s", "optimizer.lr=1e-3", swept=("optimizer.lr=1e-3",)))
    moved = RunPaths(paths.root.rename(tmp_path / "kept"))

    after = saved_job(moved)
    assert run_paths(after) == moved
    refuse_other_training(moved, after.tree, "auto")


def test_a_folder_with_a_name_that_no_run_has_is_refused(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it")
    moved = RunPaths(paths.root.rename(tmp_path / "no run is called so"))

    with pytest.raises(UserError, match="give the folder its old name"):
        saved_job(moved)


@pytest.mark.parametrize(("started_with", "goes_on_with"), [("never", "auto"), ("auto", "auto"), ("must", "must")])
def test_a_run_that_was_started_from_nothing_is_not_started_from_nothing_again(
    started_with: str, goes_on_with: str, tmp_path: Path
) -> None:
    paths = make_run(tmp_path, "it", overrides={"resume": started_with})

    assert saved_job(paths).job.resume == goes_on_with


def test_the_sources_of_the_values_stay(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", overrides={"optimizer.lr": 0.1})

    assert getattr(saved_job(paths).provenance["optimizer.lr"], "text", None) == "override 1: optimizer.lr=0.1"


@pytest.mark.parametrize("content", ["{ torn", "", "optimizer: {learning_rate: 1}"])
def test_a_configuration_that_cannot_be_read_is_told_with_the_command_that_made_it(
    content: str, tmp_path: Path
) -> None:
    paths = make_run(tmp_path, "it")
    paths.config.write_text(content)

    with pytest.raises(UserError, match=r"it was started by: cd .* && python -m primus_hydra run\.name=it") as caught:
        saved_job(paths)
    assert str(paths.config) in str(caught.value)


def test_a_run_at_work_is_not_started_twice(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="running")
    hold(paths)

    with pytest.raises(UserError, match=r"it is at work: process .*\n.*task\.action=follow"):
        resume_run("it", paths.root)


def test_the_runs_own_task_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = make_run(tmp_path, "it", status="saved")
    seen: list[Composed] = []
    task = contract.task_class("primus_hydra.tasks.train.Train")
    monkeypatch.setattr(task, "run", lambda self, composed: seen.append(composed) or int(ExitCode.REQUEUE))

    assert resume_run("it", paths.root) == ExitCode.REQUEUE
    assert run_paths(seen[0]) == paths
