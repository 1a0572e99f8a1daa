"""Two ranks train what one rank trains: same samples, same first weights, same losses within float noise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.ranked import sizes
from tests.integration.ranked.driver import Result
from tests.integration.ranked.lab import STEPS, Lab, losses_of

pytestmark = pytest.mark.ranks

COMPARED = STEPS
# Ranks sum in another order. One float32 rounding of a loss near 6.5 is 5e-7, a handful of them meet in a loss, and six
# updates with a rate of 3e-3 carry them on without growing them much; a wrong sample or shard shows in the first digit.
NOISE = 2e-5

DEEP = {
    "model.num_hidden_layers": 4,
    "training.steps": 4,
    "training.micro_batch_size": 1,
    "validation.enable": False,
}


def assert_agrees(losses: dict[int, float], expected: dict[int, float], steps: range) -> None:
    assert [losses[step] for step in steps] == pytest.approx([expected[step] for step in steps], abs=NOISE)


@pytest.mark.parametrize(
    ("name", "overrides", "reporter"),
    [
        ("fsdp", {"parallel.dp_shard": 2}, 0),
        ("tp", {"parallel.tp": 2}, 0),
        ("cp", {"parallel.cp": 2}, 0),
        ("pp", {"parallel.pp": 2}, 1),
    ],
)
def test_two_ranks_agree_with_one_from_the_same_weights(
    name: str, overrides: dict[str, Any], reporter: int, lab: Lab, alone: dict[str, Result]
) -> None:
    # Ends early by a stop, as the schedule depends on the number of steps; a pipeline's stages draw other weights.
    settings = {
        **overrides,
        "init_from": str(lab.root / "seed" / "checkpoints" / "step-0"),
        "validation.every": COMPARED,
    }
    results = lab.train(2, lab.scenario(name, settings, stop_at=COMPARED, before=sizes.BEFORE))
    losses = losses_of(results, reporter=reporter)
    assert sorted(losses) == list(range(1, COMPARED + 1))
    assert_agrees(losses, alone["straight"].losses, range(1, COMPARED + 1))
    assert results[reporter][0].metrics[-1]["validation_loss"] is not None
    # Whether there is room on the disk is judged by it.
    assert 0 <= sizes.taken_too_large(lab.root / name) < 0.12


@pytest.fixture(scope="module")
def deep(lab: Lab) -> dict[int, float]:
    """Train four layers on one rank, from a seed checkpoint of their own."""
    seed = {"backend.config": {"checkpoint": {"create_seed_checkpoint": True}}}
    results = lab.train(1, lab.scenario("deep-seed", DEEP | seed), lab.scenario("deep", DEEP))
    return results[0][1].losses


@pytest.mark.parametrize(("schedule", "reporter"), [("Interleaved1F1B", 1), ("ZBVZeroBubble", 0)])
def test_stages_in_several_chunks_agree_with_one_rank(
    schedule: str, reporter: int, lab: Lab, deep: dict[int, float]
) -> None:
    pipeline = {"parallel.pp": 2, "parallel.vpp": 2, "parallel.pipeline_schedule": schedule}
    weights = {"init_from": str(lab.root / "deep-seed" / "checkpoints" / "step-0")}
    results = lab.train(2, lab.scenario(schedule, DEEP | pipeline | weights))
    assert_agrees(losses_of(results, reporter=reporter), deep, range(1, 5))


def test_a_checkpoint_of_one_rank_goes_on_with_two(lab: Lab, alone: dict[str, Result]) -> None:
    lab.copy("straight", "regrouped")
    results = lab.train(2, lab.scenario("regrouped", {"parallel.dp_shard": 2}, resume_from=10))
    losses = losses_of(results)
    assert sorted(losses) == list(range(11, STEPS + 1))
    assert_agrees(losses, alone["straight"].losses, range(11, STEPS + 1))


def test_a_rank_that_breaks_does_not_leave_the_other_hanging(lab: Lab) -> None:
    breaking = lab.scenario("broken", {"parallel.dp_shard": 2, "checkpoint.async_mode": "async"}, fail_at=3)
    first, second = lab.train(2, breaking)
    assert first[0].error == "RuntimeError: the rank breaks"
    assert second[0].error is not None
    assert (first[0].last_step, second[0].last_step) == (3, 4)
