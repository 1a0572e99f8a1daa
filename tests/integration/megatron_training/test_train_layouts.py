"""Upstream's loop on two ranks against one process that starts from the same weights."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.megatron_training.conftest import STEPS, Lab
from tests.integration.megatron_training.driver import Result
from tests.integration.megatron_training.words import OURS

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

BOUND = 1e-5
"""Sums in another order: about 1e-6 in float32."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "tp2": {"parallel.tp": 2},
    "dp2": {"parallel.dp_shard": 2, "training.micro_batch_size": 1},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_ranks_equal_one_and_resume_to_the_bit(lab: Lab, alone: dict[str, Result], name: str) -> None:
    layout = LAYOUTS[name]
    first, second = lab.train(2, lab.scenario(name, layout), lab.scenario(name, layout, resume_from=4))
    assert [result.error for result in (*first, *second)] == [None] * 4
    assert first[0].losses == pytest.approx(alone["straight"].losses, abs=BOUND)
    assert second[0].losses == {}
    assert first[1].losses == {step: loss for step, loss in first[0].losses.items() if step > 4}
    assert [result.completed for result in (*first, *second)] == [[4, STEPS], [STEPS], [4, STEPS], [STEPS]]
    assert ("--use-distributed-optimizer" in first[0].argv) is (name == "dp2")


def test_a_pipeline_with_virtual_chunks_reports_the_real_loss_from_its_last_rank(lab: Lab) -> None:
    chunks = {"parallel.pp": 2, "parallel.vpp": 2, "parallel.pipeline_schedule": "Interleaved1F1B"}
    settings = {**chunks, "model.num_hidden_layers": 4, "training.steps": 2}
    first, last = lab.train(2, lab.scenario("vpp", settings), lab.scenario("our vpp", settings, backend=OURS))
    assert [result.error for result in (*first, *last)] == [None] * 4
    assert first[0].losses == {}
    assert last[0].losses == pytest.approx(last[1].losses, abs=1e-6)
    assert last[0].losses[2] < last[0].losses[1] < 6.5
