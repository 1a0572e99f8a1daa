"""Every shipped experiment plans on each platform that it is made for, and says which those are."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra import conf
from primus_hydra.config.compose import Request, compose
from primus_hydra.config.foundation import Foundations
from primus_hydra.tasks.plan_view import plan_job

FOLDER = Path(conf.__file__).parent
FILES = sorted((FOLDER / "experiment").glob("*.yaml"))
PLATFORMS = {file.stem for file in (FOLDER / "platform").glob("*.yaml")} - {"auto"}
MARK = "# Made for: "


def made_for(file: Path) -> list[str]:
    """Return the platforms that an experiment names in its third line."""
    line = file.read_text(encoding="utf-8").splitlines()[2]
    assert line.startswith(MARK), line
    return line.removeprefix(MARK).split()


CASES = [(file.stem, platform) for file in FILES for platform in made_for(file)]


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_an_experiment_says_what_it_is_for_and_where_it_runs(file: Path) -> None:
    package, first, _ = file.read_text(encoding="utf-8").splitlines()[:3]
    assert package == "# @package _global_"
    assert first.endswith(".")
    assert set(made_for(file)) <= PLATFORMS


@pytest.fixture(scope="module")
def foundations() -> Foundations:
    return Foundations()


@pytest.mark.parametrize(("experiment", "platform"), CASES)
def test_an_experiment_plans_on_each_platform_that_it_is_made_for(
    experiment: str, platform: str, foundations: Foundations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    request = Request(overrides=[f"experiment={experiment}", f"platform={platform}", "task=plan"])

    planned = plan_job(compose(request, foundations))

    assert not planned.standing.problems
    assert planned.composed.job.platform.name == platform
    assert planned.launch.spec.layout.world_size % max(1, planned.composed.job.platform.gpus_per_node) == 0


def test_values_tuned_for_a_platform_are_found_by_the_names_of_model_and_platform() -> None:
    sizes = {
        platform: compose(Request(overrides=["model=llama3_1_8b", f"platform={platform}"])).job.training
        for platform in ("mi300x", "mi355x", "h100")
    }
    assert {name: training.micro_batch_size for name, training in sizes.items()} == {
        "mi300x": 2,
        "mi355x": 4,
        "h100": 1,
    }


def test_every_tuned_value_belongs_to_a_platform_and_a_model() -> None:
    models = {file.stem for file in (FOLDER / "model").glob("*.yaml")}
    tuned = list((FOLDER / "platform/_values").glob("*/*.yaml"))
    assert tuned
    assert {file.parent.name for file in tuned} <= PLATFORMS
    assert {file.stem for file in tuned} <= models
    assert {file.stem for file in (FOLDER / "module/_values/pretrain").glob("*.yaml")} <= models
