from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.errors import UserError


def test_the_launcher_is_carried_and_is_no_part_of_the_job() -> None:
    here = compose(Request(overrides=["platform=cpu"]))
    there = compose(Request(overrides=["platform=cpu", "hydra/launcher=submitit"]))

    assert (here.launcher, there.launcher) == ("basic", "submitit")
    assert here.tree == there.tree


def test_an_experiment_may_choose_the_launcher(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    folder.mkdir()
    text = "# @package _global_\ndefaults:\n  - override /hydra/launcher: submitit\n"
    (folder / "cluster.yaml").write_text(text)

    assert compose(Request(overrides=["platform=cpu", "experiment=cluster"], config_dirs=[tmp_path])).launcher == (
        "submitit"
    )


@pytest.mark.parametrize("text", ["hydra/launcher=submtit", "hydra/launcher=joblib", "hydra/launcher=basic,submitit"])
def test_another_launcher_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(UserError, match="basic, submitit"):
        compose(Request(overrides=["platform=cpu", text], multirun="," in text))


def test_a_detected_platform_is_told_apart_from_a_named_one() -> None:
    assert not compose(Request(overrides=["platform=cpu"])).platform_detected
    assert compose(Request(overrides=[])).platform_detected
