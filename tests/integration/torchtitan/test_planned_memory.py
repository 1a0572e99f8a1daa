"""The plan counts the bytes that ranks hold, to the byte: parameters, gradients and optimizer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.ranked.expected_state import counted
from tests.integration.ranked.lab import Lab
from tests.integration.ranked.state_bytes import BEFORE, held

pytestmark = pytest.mark.ranks

SHORT = {"training.steps": 1, "validation.enable": False, "checkpoint.enable": False}
EXPERTS = {
    "model.architecture": "deepseek_v2",
    "model.num_key_value_heads": None,
    "model.kv_lora_rank": 64,
    "model.qk_nope_head_dim": 16,
    "model.qk_rope_head_dim": 16,
    "model.v_head_dim": 16,
    "model.n_routed_experts": 4,
    "model.n_shared_experts": 1,
    "model.num_experts_per_tok": 2,
    "model.moe_intermediate_size": 64,
    "model.first_k_dense_replace": 1,
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "shards": {"parallel.dp_shard": 2},
    "copies": {"parallel.dp_shard": 2, "parallel.sharding": "none"},
    "tensor": {"parallel.tp": 2},
    "pipeline": {"parallel.pp": 2, "training.micro_batch_size": 1},
    "context": {"parallel.cp": 2},
}
ALONE: dict[str, dict[str, Any]] = {"plain": {}, "experts": EXPERTS, "tied": {"model.tie_word_embeddings": True}}


def test_one_rank_holds_what_is_counted(lab: Lab) -> None:
    scenarios = [lab.scenario(f"memory-{name}", {**SHORT, **extra}, before=BEFORE) for name, extra in ALONE.items()]
    (results,) = lab.train(1, *scenarios)

    assert [result.error for result in results] == [None] * len(ALONE)
    for name, scenario in zip(ALONE, scenarios, strict=True):
        assert (name, held(lab.root / f"memory-{name}", 0)) == (name, counted(scenario))


def test_two_ranks_hold_what_is_counted(lab: Lab) -> None:
    scenarios = [lab.scenario(f"memory2-{name}", {**SHORT, **extra}, before=BEFORE) for name, extra in LAYOUTS.items()]
    ranks = lab.train(2, *scenarios)

    assert [result.error for results in ranks for result in results] == [None] * 2 * len(LAYOUTS)
    for name, scenario in zip(LAYOUTS, scenarios, strict=True):
        seen = [held(lab.root / f"memory2-{name}", rank) for rank in range(2)]
        if name == "pipeline":
            assert (name, seen) == (name, [counted(scenario, rank) for rank in range(2)])
        else:
            fullest = {part: max(sizes[part] for sizes in seen) for part in seen[0]}
            assert (name, fullest) == (name, counted(scenario))
