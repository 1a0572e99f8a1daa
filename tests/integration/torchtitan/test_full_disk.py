"""Two ranks, one of which finds the disk full in the middle of a save: both do the same, and the run goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.ranked.driver import Result
from tests.integration.ranked.lab import Lab

pytestmark = pytest.mark.ranks

SHORT = {"parallel.dp_shard": 2, "checkpoint.every": 2, "checkpoint.keep": 1, "validation.enable": False}


def train(lab: Lab, run: str, settings: dict[str, Any]) -> list[Result]:
    scenario = lab.scenario(run, {**SHORT, **settings}, before="tests.integration.torchtitan.disks:full")
    return [results[0] for results in lab.train(2, scenario)]


def test_a_disk_that_fills_up_costs_a_save_in_the_background_and_not_the_run(lab: Lab) -> None:
    for result in train(lab, "full", {"training.steps": 6, "checkpoint.async_mode": "async"}):
        assert (result.error, result.completed) == (None, [2, 6])
    assert lab.checkpoints("full") == ["step-6"]


def test_a_last_save_that_fails_is_told_and_does_not_keep_the_disk_full(lab: Lab) -> None:
    for result in train(lab, "full at the end", {"training.steps": 4}):
        assert (result.error or "").startswith("HostError: step 4 could not be saved: rank 1: RuntimeError")
        assert result.completed == [2]
    assert lab.checkpoints("full at the end") == ["step-2"]
