"""Operations are counted exactly, collectives take what their algorithms take, and projections stand beside results."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import published
from primus_hydra.plan.flops import causal_pairs, model_flops
from primus_hydra.plan.rates import (
    Group,
    Rates,
    exchange_seconds,
    gather_seconds,
    group_of,
    power_clock,
    rates_of,
    reduce_seconds,
)  # fmt: skip
from primus_hydra.plan.throughput import idle_seconds, throughput_of
from tests.unit.plan.settings import job_of, setting

RATES = Rates(
    gemm=1e12, gemm_8=2e12, attention_forward=1e12, attention_backward=1e12, memory=1e11, link=1e11, nic=1e10,
    peak=2e12, latency_link=0.0, latency_nic=0.0,
)  # fmt: skip


def test_operations_are_twice_the_weights_and_the_pairs_that_are_seen() -> None:
    model = job_of("model=llama3_8b").model
    flops = model_flops(model, 128256, 8192)
    matrices = 8_030_261_248 - 2 * 128256 * 4096 - 65 * 4096

    assert flops.products == 2 * matrices
    assert flops.output == 2 * 128256 * 4096
    assert flops.attention == 32 * 4 * 32 * 128 * 8193 / 2
    assert flops.all_pairs - flops.trained == pytest.approx(3 * 32 * 4 * 4096 * 8191 / 2)


def test_a_window_bounds_the_pairs() -> None:
    assert causal_pairs(4) == 2.5
    assert causal_pairs(4, 2) == (1 + 2 + 2 + 2) / 4


def test_a_mixture_computes_the_experts_that_a_token_visits() -> None:
    job = setting("model=deepseek_v2_lite", "platform=h100", "training.global_batch_size=64")
    flops = model_flops(job.model, job.vocab, 4096)

    assert flops.experts == 2 * 26 * 6 * 3 * 2048 * 1408


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_gather_moves_all_but_a_ranks_own_part(nodes: int) -> None:
    group = group_of(8 * nodes, 1, 8)
    speed = 1e11 if nodes == 1 else 8e10

    assert group.nodes == nodes
    assert gather_seconds(RATES, group, 1e9) == pytest.approx(1e9 * (group.ranks - 1) / group.ranks / speed)


def test_ranks_that_lie_apart_share_no_adapter() -> None:
    assert group_of(4, 8, 8) == Group(ranks=4, on_node=1)
    assert group_of(8, 2, 8) == Group(ranks=8, on_node=4)
    assert gather_seconds(RATES, group_of(4, 8, 8), 1e9) == pytest.approx(0.75 * 1e9 / 1e10)


def test_an_all_reduce_takes_the_best_of_its_algorithms() -> None:
    slow = dataclasses.replace(RATES, latency_nic=1e-3)
    many = group_of(512, 1, 8)

    assert reduce_seconds(RATES, group_of(8, 1, 8), 1e9) == pytest.approx(
        2 * gather_seconds(RATES, group_of(8, 1, 8), 1e9)
    )
    assert reduce_seconds(slow, many, 1e3) < 2 * gather_seconds(slow, many, 1e3) / 3, "small messages go by a tree"


def test_what_leaves_the_node_bounds_an_all_to_all() -> None:
    assert exchange_seconds(RATES, group_of(16, 1, 8), 1e9) == pytest.approx(1e9 * 8 / 16 / 1e10)


def test_less_power_slows_the_clock() -> None:
    assert power_clock(700, 700) == 1
    assert power_clock(500, 700) == pytest.approx(0.6 ** (1 / 3))


def test_the_closed_form_of_the_search_is_near_the_run_schedule() -> None:
    job = setting("model=llama3_70b", "platform=h100", "backend=megatron", "parallel.tp=4", "parallel.pp=8",
                  "parallel.vpp=5", "parallel.pipeline_schedule=Interleaved1F1B", "launch.nodes=8",
                  "training.global_batch_size=128")  # fmt: skip
    rates = rates_of(job_of("platform=h100").platform, job)
    assert rates is not None
    exact, quick = throughput_of(job, rates), throughput_of(job, rates, exact=False)

    assert quick.step_s == pytest.approx(exact.step_s, rel=0.02)
    assert idle_seconds(job, 1.0, 2.0, 0.0) == 7 * 3 / 5


def test_the_parts_of_a_step_are_the_step() -> None:
    job = setting("model=llama3_8b", "platform=h100", "training.global_batch_size=64")
    rates = rates_of(job_of("platform=h100").platform, job)
    assert rates is not None
    found = throughput_of(job, rates)

    assert sum(found.where.values()) == pytest.approx(found.step_s)
    assert 0.2 < found.mfu < 0.6


def test_measured_rates_take_the_place_of_stated_ones() -> None:
    job = setting("model=llama3_8b", "platform=h100", "training.global_batch_size=64")
    rates = rates_of(job_of("platform=h100").platform, job)
    assert rates is not None
    slower = rates.measured({"gemm": rates.gemm / 2})

    assert throughput_of(job, slower).step_s > throughput_of(job, rates).step_s * 1.3
    assert "measured: gemm" in throughput_of(job, slower).source


def test_a_platform_without_rates_is_not_projected() -> None:
    assert rates_of(job_of("platform=cpu").platform, setting("platform=cpu")) is None


def test_published_rows_that_nothing_was_fitted_to_are_mostly_within_ten_percent() -> None:
    found = published.rows()
    checked = [row for row in found if row.use == "check"]

    assert [row.name for row in found if row.use != "check"] == ["Llama 3.1 8B on 8 H100, compiled"]
    assert sum(abs(row.error) <= 0.10 for row in checked) >= 12
    assert all(row.why for row in checked if abs(row.error) > 0.30)
    page = (published.TABLE.parent.parent / "docs" / "published.md").read_text("utf-8")
    assert page == published.page(found), "run python benchmarks/published.py --write docs/published.md"
