"""The same command is the same run."""

from __future__ import annotations

import pytest

from primus_hydra.config.identity import default_name, differences
from tests.support import job_tree

NAME = default_name(job_tree())


def test_equal_configurations_have_equal_names() -> None:
    assert default_name(job_tree()) == NAME
    assert NAME.startswith("llama3_tiny-pretrain-")


@pytest.mark.parametrize("key", ["training.steps", "optimizer.lr", "data.kind", "training.seed", "parallel.tp"])
def test_what_determines_the_training_changes_the_name(key: str) -> None:
    values = {"training.steps": 9, "optimizer.lr": 0.5, "data.kind": "mock", "training.seed": 1, "parallel.tp": 2}

    assert default_name(job_tree({key: values[key]})) != NAME


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("launch.nodes", 4),
        ("metrics.log_every", 5),
        ("run.group", "x"),
        ("resume", "must"),
        ("checkpoint.every", 7),
        ("platform.gpus_per_node", 8),
    ],
)
def test_what_does_not_determine_the_training_keeps_the_name(key: str, value: object) -> None:
    assert default_name(job_tree({key: value})) == NAME


def test_a_value_set_to_its_default_keeps_the_name() -> None:
    assert default_name(job_tree({"optimizer.beta1": 0.9})) == NAME


def test_differences_name_old_and_new_values() -> None:
    changed = differences(job_tree(), job_tree({"optimizer.lr": 0.5, "run.group": "x"}))

    assert changed == {"optimizer.lr": (3e-4, 0.5)}
