"""What is reported of a step: rates of the whole job, the owner alone, and the line in its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from megatron.core.transformer.transformer_config import TransformerConfig

from primus_hydra.backends.megatron.metrics import Reporter, StepResult, balance_losses, line_of
from primus_hydra.backends.megatron.validation import measures_at
from primus_hydra.runtime.contracts import StepMetrics


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("time.perf_counter", lambda: clock.now)
    return clock


def make_reporter(reported: list[StepMetrics], *, owns_loss: bool = True, peak: float | None = 1e9) -> Reporter:
    return Reporter(
        reported.append,
        owns_loss=owns_loss,
        world_size=4,
        last_step=20,
        flops_per_token=1000,
        peak_flops=peak,
        device=torch.device("cpu"),
    )


def a_step(step: int, *, grad_norm: float | None = 0.5) -> StepResult:
    return StepResult(step=step, loss=5.0, grad_norm=grad_norm, lr=1e-3, extra={"tokens_seen": 7.0})


def test_rates_are_of_the_whole_job(clock: SimpleNamespace) -> None:
    reported: list[StepMetrics] = []
    reporter = make_reporter(reported)
    reporter.begin(4)
    clock.now += 2.0
    reporter.count(1500)
    reporter.count(500)
    reporter.report(a_step(8))
    (line,) = reported
    assert (line.step, line.loss, line.grad_norm, line.lr) == (8, 5.0, 0.5, 1e-3)
    assert (line.tokens_per_s, line.step_time_s) == (1000, 0.5)
    assert line.tflops_per_rank == pytest.approx(1000 * 1000 / 4 / 1e12)
    assert line.mfu == pytest.approx(1000 * 1000 / 4 / 1e9)
    assert (line.memory_gib, line.extra) == (None, {"tokens_seen": 7.0})


def test_each_report_counts_from_the_one_before(clock: SimpleNamespace) -> None:
    reported: list[StepMetrics] = []
    reporter = make_reporter(reported, peak=None)
    reporter.begin(0)
    for step in (1, 2):
        clock.now += 2.0
        reporter.count(100 * step)
        reporter.report(a_step(step))
    assert [line.tokens_per_s for line in reported] == [50, 100]
    assert [line.mfu for line in reported] == [None, None]


def test_a_validated_step_is_reported_once_more_and_its_time_left_out(clock: SimpleNamespace) -> None:
    reported: list[StepMetrics] = []
    reporter = make_reporter(reported)
    reporter.begin(0)
    clock.now += 1.0
    reporter.report(a_step(1))
    clock.now += 50.0
    reporter.report_validation(1, 4.5)
    clock.now += 1.0
    reporter.report(a_step(2))
    assert [(line.step, line.validation_loss, line.step_time_s) for line in reported] == [
        (1, None, 1.0),
        (1, 4.5, 1.0),
        (2, None, 1.0),
    ]


def test_ranks_that_do_not_own_the_loss_report_nothing() -> None:
    reported: list[StepMetrics] = []
    reporter = make_reporter(reported, owns_loss=False)
    reporter.report(a_step(1))
    reporter.report_validation(1, 4.5)
    assert reported == []


def test_the_log_line_gives_rates_per_gpu() -> None:
    metrics = StepMetrics(
        step=3, loss=6.25, lr=1e-3, grad_norm=0.5, tokens_per_s=4000, tflops_per_rank=12.5, step_time_s=0.25
    )
    assert line_of(metrics, 20, 4, unit="GPU") == (
        "step 3/20  loss 6.25000  grad norm 0.5000  lr 1.000e-03  12.50 TFLOP/s/GPU  1,000 tokens/s/GPU  0.250 s"
    )
    assert "grad norm skipped" in line_of(StepMetrics(step=3, loss=6.25, lr=1e-3), 20, 4, unit="rank")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"moe_router_load_balancing_type": "none", "moe_aux_loss_coeff": 0.0}, []),
        (
            {"moe_router_load_balancing_type": "seq_aux_loss", "moe_aux_loss_coeff": 0.01, "moe_z_loss_coeff": 0.1},
            ["seq_load_balancing_loss", "z_loss"],
        ),
        (
            {"moe_router_load_balancing_type": ["aux_loss", "global_aux_loss"], "moe_aux_loss_coeff": [0.1, 0.0]},
            ["load_balancing_loss"],
        ),
    ],
)
def test_balance_losses_are_those_with_a_weight(fields: dict[str, Any], expected: list[str]) -> None:
    experts = {"num_moe_experts": 4} if fields else {}
    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1, **experts, **fields)
    assert balance_losses(config) == expected


def test_the_last_step_is_always_measured() -> None:
    assert [step for step in range(1, 8) if measures_at(step, 3, 7)] == [3, 6, 7]
