"""A run goes on only with the training that it was started with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from primus_hydra.errors import UserError
from primus_hydra.run.paths import RunPaths
from primus_hydra.tasks.run_folder import refuse_other_training, refuse_too_few_steps
from tests.support import job_tree


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run with a saved configuration and a checkpoint folder."""
    paths = RunPaths(tmp_path / "mine")
    paths.checkpoint(10).mkdir(parents=True)
    paths.config.write_text(yaml.safe_dump(job_tree()))
    return paths


def test_the_same_values_go_on(paths: RunPaths) -> None:
    refuse_other_training(paths, job_tree(), "auto")


def test_other_values_are_refused_with_the_difference(paths: RunPaths) -> None:
    with pytest.raises(UserError, match=r"optimizer\.lr: 0\.0003 -> 0\.5"):
        refuse_other_training(paths, job_tree({"optimizer.lr": 0.5}), "auto")


def test_must_goes_on_with_other_values_but_not_with_another_shape(paths: RunPaths) -> None:
    refuse_other_training(paths, job_tree({"optimizer.lr": 0.5}), "must")
    with pytest.raises(UserError, match="another shape"):
        refuse_other_training(paths, job_tree({"model.hidden_size": 128}), "must")


def test_a_run_whose_configuration_is_lost_needs_somebody_to_vouch_for_it(paths: RunPaths) -> None:
    paths.config.write_text("{ torn")

    with pytest.raises(UserError, match="cannot be read"):
        refuse_other_training(paths, job_tree(), "auto")
    refuse_other_training(paths, job_tree(), "must")


def test_fewer_steps_than_the_checkpoint_has_are_refused(paths: RunPaths) -> None:
    refuse_too_few_steps(paths, 10, 10)
    with pytest.raises(UserError, match=r"training\.steps=10 or more"):
        refuse_too_few_steps(paths, 10, 6)
