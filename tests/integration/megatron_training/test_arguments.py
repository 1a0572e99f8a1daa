"""Neutral keys reach upstream's own objects through its arguments, and the data file is what its parser takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

UPSTREAMS_OWN = {
    "transformer": {
        "tensor_parallel_num_weight_shards",
        "expert_tensor_parallel_num_weight_shards",
        "batch_p2p_comm",
        "deallocate_pipeline_outputs",
        "cp_comm_type",
    },
    "optimizer": {"fp8_recipe", "muon_momentum", "optimizer_offload_fraction", "barrier_with_L1_time"},
    "ddp": {"check_for_nan_in_grad", "data_parallel_sharding_strategy"},
}
"""Fields that upstream always fills itself, and whose values are for features that no neutral key turns on."""


@pytest.fixture(scope="module")
def found(described: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((described / "described.json").read_text())
    return found


def test_the_data_file_equals_the_parser(found: dict[str, Any]) -> None:
    file = Path(__file__).resolve().parents[3] / "backends/megatron/training/schema/0.19.json"
    assert file.read_text(encoding="utf-8") == found["schema"]


@pytest.mark.parametrize("section", UPSTREAMS_OWN)
def test_upstream_builds_what_our_loop_builds(found: dict[str, Any], section: str) -> None:
    assert len(found["models"]) >= 6
    for model, sections in found["models"].items():
        assert set(sections[section]) <= UPSTREAMS_OWN[section], f"{model}: {sections[section]}"
