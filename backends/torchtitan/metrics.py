"""torchtitan's metrics processor that reports to the run, from the one rank that knows the loss.

Under pipeline parallelism only the last stage computes a loss; the other ranks hold -1, which is never reported.
Rates are of the whole job: tokens of all data-parallel ranks over the wall time since the last report.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed
from torchtitan.components.metrics import MetricsProcessor

from primus_hydra.runtime.contracts import StepMetrics

_V_SCHEDULES = ("zbvzerobubble", "dualpipev")
"""Schedules whose first rank holds the first and the last stage."""


def loss_rank(world_size: int, pp: int, schedule: str) -> int:
    """Return the lowest rank that computes the loss; ranks of one stage are consecutive, stages ascend."""
    if pp == 1 or schedule.lower() in _V_SCHEDULES:
        return 0
    return world_size // pp * (pp - 1)


class ReportingMetricsProcessor(MetricsProcessor):  # type: ignore[misc]
    """Logs as torchtitan does, on the loss rank only, and reports the same step to the run."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):  # type: ignore[misc]
        """`report` takes a logged step, `also_log` says which steps are logged beside every `log_freq`-th.

        `peak_flops` is the peak of one rank in FLOP/s; None means that no utilisation is reported.
        """

        report: Callable[[StepMetrics], None]
        also_log: Callable[[int], bool]
        peak_flops: float | None = None

    def __init__(self, config: Config, *, parallel_dims: Any, pp_schedule: str = "1F1B", **rest: Any) -> None:
        super().__init__(config, parallel_dims=parallel_dims, pp_schedule=pp_schedule, **rest)
        owner = loss_rank(parallel_dims.world_size, parallel_dims.pp, pp_schedule)
        self._owns_loss = torch.distributed.get_rank() == owner
        self._last_step = 0
        self._last: StepMetrics | None = None

    def begin(self, step: int) -> None:
        """Start counting time and steps: training goes on after `step`."""
        self._last_step = step
        self.time_last_log = time.perf_counter()

    def should_log(self, step: int) -> bool:
        """Whether a step is logged: every `log_freq`-th, and those that `also_log` names."""
        return step % self.config.log_freq == 0 or bool(self.config.also_log(step))

    def log(
        self,
        step: int,
        global_avg_loss: float,
        global_max_loss: float,
        grad_norm: float,
        extra_metrics: dict[str, Any] | None = None,
    ) -> None:
        """Report a step: loss in nats per token over the global batch, its gradient norm before clipping."""
        if self._owns_loss:
            self._last = self._measure(step, global_avg_loss, global_max_loss, grad_norm, extra_metrics or {})
            super().log(step, global_avg_loss, global_max_loss, grad_norm, extra_metrics)
            self.config.report(self._last)
        else:
            self._start_anew()
        self._last_step = step

    def log_validation(self, loss: float, step: int, extra_metrics: dict[str, Any] | None = None) -> None:
        """Report the validation loss with the step's own metrics, once more."""
        if self._owns_loss:
            super().log_validation(loss, step, extra_metrics)
            if self._last is not None and self._last.step == step:
                self.config.report(dataclasses.replace(self._last, validation_loss=loss))
        else:
            self._start_anew()

    def _measure(self, step: int, loss: float, max_loss: float, grad_norm: float, extra: dict[str, Any]) -> StepMetrics:
        seconds = max(time.perf_counter() - self.time_last_log, 1e-9)
        dims = self.parallel_dims
        tokens_per_s = self.ntokens_since_last_log * dims.dp_replicate * dims.dp_shard / seconds
        flops_per_rank = self.num_flops_per_token * tokens_per_s / dims.world_size
        peak = None if self.has_quantization else self.config.peak_flops
        return StepMetrics(
            step=step,
            loss=loss,
            lr=max((value for name, value in extra.items() if name.startswith("lr/")), default=math.nan),
            grad_norm=grad_norm,
            tokens_per_s=tokens_per_s,
            tflops_per_rank=flops_per_rank / 1e12,
            mfu=flops_per_rank / peak if peak else None,
            memory_gib=self.device_memory_monitor.get_peak_stats().max_reserved_gib,
            step_time_s=seconds / max(step - self._last_step, 1),
            extra={"max_loss": max_loss, "tokens_seen": float(extra.get("n_tokens_seen", 0))},
        )

    def _start_anew(self) -> None:
        self.ntokens_since_last_log = 0
        self.data_loading_times.clear()
        self.time_last_log = time.perf_counter()
        self.device_memory_monitor.reset_peak_stats()
