from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torchtitan.components.metrics import DeviceMemStats

from primus_hydra.backends.torchtitan.metrics import ReportingMetricsProcessor, loss_rank
from primus_hydra.backends.torchtitan.validator import measures_at
from primus_hydra.runtime.contracts import StepMetrics


@pytest.mark.parametrize(
    ("world_size", "pp", "schedule", "expected"),
    [
        (8, 1, "1F1B", 0),
        (8, 2, "1F1B", 4),
        (8, 4, "Interleaved1F1B", 6),
        (8, 8, "GPipe", 7),
        (8, 4, "ZBVZeroBubble", 0),
        (8, 2, "DualPipeV", 0),
    ],
)
def test_the_rank_that_reports_holds_the_last_stage(world_size: int, pp: int, schedule: str, expected: int) -> None:
    assert loss_rank(world_size, pp, schedule) == expected


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("time.perf_counter", lambda: clock.now)
    return clock


def make_processor(
    monkeypatch: pytest.MonkeyPatch,
    reported: list[StepMetrics],
    *,
    rank: int = 0,
    pp: int = 1,
    peak: float | None = 1e9,
) -> Any:
    memory = SimpleNamespace(
        device_name="cpu",
        get_peak_stats=lambda: DeviceMemStats(1.0, 2.0, 3.0, 4.0, 0, 0),
        reset_peak_stats=lambda: None,
    )
    monkeypatch.setattr("torchtitan.components.metrics.build_device_memory_monitor", lambda: memory)
    monkeypatch.setattr("torchtitan.tools.utils.get_peak_flops", lambda name: 1.0)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: rank)
    config = ReportingMetricsProcessor.Config(
        report=reported.append, also_log=lambda step: step == 9, peak_flops=peak, log_freq=4
    )
    dims = SimpleNamespace(world_size=4, pp=pp, dp_replicate=2, dp_shard=1, non_data_parallel_size=2)
    processor = config.build(parallel_dims=dims)
    processor.num_flops_per_token = 1000
    return processor


def test_rates_are_of_the_whole_job(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> None:
    reported: list[StepMetrics] = []
    processor = make_processor(monkeypatch, reported)
    processor.begin(4)
    clock.now += 2.0
    processor.ntokens_since_last_log = 1000
    processor.data_loading_times.append(0.1)
    processor.log(8, 5.0, 6.0, 0.5, extra_metrics={"lr/AdamW": 1e-3, "n_tokens_seen": 7})
    (line,) = reported
    assert (line.step, line.loss, line.grad_norm, line.lr) == (8, 5.0, 0.5, 1e-3)
    assert line.tokens_per_s == 1000  # 1000 tokens on each of two data-parallel ranks in 2 s
    assert line.step_time_s == 0.5
    assert line.tflops_per_rank == pytest.approx(1000 * 1000 / 4 / 1e12)
    assert line.mfu == pytest.approx(1000 * 1000 / 4 / 1e9)
    assert line.memory_gib == 3.0
    assert line.extra == {"max_loss": 6.0, "tokens_seen": 7.0}


def test_without_a_known_peak_there_is_no_utilisation(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> None:
    reported: list[StepMetrics] = []
    processor = make_processor(monkeypatch, reported, peak=None)
    clock.now += 1.0
    processor.data_loading_times.append(0.1)
    processor.log(4, 5.0, 6.0, 0.5)
    assert reported[0].mfu is None


def test_a_rank_without_the_loss_reports_nothing_and_counts_anew(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    reported: list[StepMetrics] = []
    processor = make_processor(monkeypatch, reported, pp=2)
    processor.ntokens_since_last_log = 1000
    clock.now += 3.0
    processor.log(4, -1.0, -1.0, 0.5)
    processor.log_validation(-1.0, 4)
    assert reported == []
    assert (processor.ntokens_since_last_log, processor.time_last_log) == (0, clock.now)


def test_a_validation_loss_comes_with_the_metrics_of_its_step(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    reported: list[StepMetrics] = []
    processor = make_processor(monkeypatch, reported, rank=2, pp=2)
    clock.now += 1.0
    processor.data_loading_times.append(0.1)
    processor.log(4, 5.0, 6.0, 0.5)
    clock.now += 1.0
    processor.log_validation(4.5, 4)
    assert [(line.step, line.loss, line.validation_loss) for line in reported] == [(4, 5.0, None), (4, 5.0, 4.5)]


def test_steps_are_logged_by_frequency_and_out_of_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    processor = make_processor(monkeypatch, [])
    assert [step for step in range(1, 13) if processor.should_log(step)] == [4, 8, 9, 12]


def test_validation_follows_every_nth_and_the_last_step() -> None:
    assert [step for step in range(1, 12) if measures_at(step, 4, 11)] == [4, 8, 11]
