"""The name of a sweep, and points that a sweeper chose."""

from __future__ import annotations

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.points import Points
from primus_hydra.config.sweep import sampled_point
from primus_hydra.tasks.run_folder import run_paths


def names(*overrides: str) -> set[str]:
    points = Points(Request(overrides=["platform=cpu", *overrides], multirun=True)).all()
    return {run_paths(point).root.parent.name for point in points}


def test_all_points_of_a_sweep_lie_in_one_folder_and_more_values_do_not_change_it() -> None:
    few, more = names("optimizer.lr=1e-3,2e-3"), names("optimizer.lr=1e-3,2e-3,3e-3")

    assert len(few) == 1
    assert few == more
    assert few != names("training.seed=1,2")
    assert few != names("optimizer.lr=1e-3,2e-3", "training.steps=7")
    assert few == names("optimizer.lr=1e-3,2e-3", "launch.max_restarts=7")


def test_a_sweep_of_models_is_not_named_after_one() -> None:
    (name,) = names("model=llama3_tiny,llama3_8b")

    assert name.startswith("pretrain-sweep-")


def test_a_run_that_is_named_gives_its_name_to_the_sweep() -> None:
    assert names("optimizer.lr=1e-3,2e-3", "run.name=mine") == {"mine"}


def test_a_point_that_cannot_be_without_what_is_swept_has_a_name_all_the_same() -> None:
    (name,) = names("data=text", "data.path=/here,/there")

    assert "-sweep-" in name


def test_points_share_their_files_and_are_as_if_composed_alone() -> None:
    overrides = ["platform=cpu", "model=llama3_tiny,qwen3_0_6b", "optimizer.lr=1e-3,2e-3", "env.X=a b"]
    for point in Points(Request(overrides=overrides, multirun=True)).all():
        alone = compose(Request(overrides=point.overrides))

        assert point.tree == alone.tree
        assert point.provenance == alone.provenance
        assert point.choices == alone.choices


def test_a_point_keeps_what_was_typed_and_takes_what_was_sampled() -> None:
    typed = ["data.path=a#b", "optimizer.lr=interval(0,1)", "model=choice(a,b)", "hydra/sweeper=optuna"]
    sampled = ["optimizer.lr=0.5", "model=b", "data.path='a#b'", "training.seed=3"]
    point = sampled_point(typed, sampled)

    assert point.overrides == ("data.path=a#b", "optimizer.lr=0.5", "model=b", "training.seed=3")
    assert point.swept == ("optimizer.lr=0.5", "model=b", "training.seed=3")


@pytest.mark.parametrize(("typed", "sweeper"), [([], "basic"), (["hydra/sweeper=optuna"], "optuna")])
def test_the_sweeper_is_the_one_that_was_chosen(typed: list[str], sweeper: str) -> None:
    assert Points(Request(overrides=["platform=cpu", *typed], multirun=True)).sweeper() == sweeper
