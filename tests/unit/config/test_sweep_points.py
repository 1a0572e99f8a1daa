"""A sweep is composed whole: mistakes are told once, and layouts that cannot be are parted from the rest."""

from __future__ import annotations

import pytest

from primus_hydra.config.compose import Request
from primus_hydra.config.points import Points
from primus_hydra.config.sweep import expand_sweep, sweep_layouts
from primus_hydra.errors import UserError


def request(*overrides: str) -> Request:
    return Request(overrides=[*overrides, "platform=cpu"], multirun=True)


def test_layouts_that_do_not_divide_are_skipped_with_their_reason() -> None:
    kept, skipped = sweep_layouts(Points(request("parallel.tp=1,2,3")).all())

    assert [point.job.parallel.tp for point in kept] == [1, 2]
    assert [point.point.job.parallel.tp for point in skipped] == [3]
    assert "not divisible by 3" in skipped[0].problems[0].what


def test_a_mistake_of_several_points_is_told_once_with_its_point() -> None:
    with pytest.raises(UserError) as caught:
        Points(request("optimizer.lr=1e-3,fast", "training.steps=2,3")).all()

    (problem,) = caught.value.problems
    assert "(point optimizer.lr=fast, training.steps=2 and 1 more)" in problem.what
    assert problem.where == "override 1: optimizer.lr=1e-3,fast"


def test_names_are_judged_before_any_point() -> None:
    with pytest.raises(UserError) as caught:
        Points(request("optimizer.lrr=1e-3,1e-4", "model=llama3_tiny,llama3_8")).all()

    assert [problem.key for problem in caught.value.problems] == ["optimizer.lrr", "model"]


def test_a_pattern_lists_the_options_it_matches() -> None:
    points = expand_sweep(["model=glob(llama3_t*)", "training.steps=range(1,3)"])

    assert [point.overrides for point in points][:2] == [
        ("model=llama3_tiny", "training.steps=1"),
        ("model=llama3_tiny", "training.steps=2"),
    ]
    with pytest.raises(UserError, match="no option matches"):
        expand_sweep(["model=glob(zz*)"])
