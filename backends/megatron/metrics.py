"""What a run is told of its steps, from the one rank that owns the loss: metrics, and a line in that rank's log.

Rates are of the whole job: tokens of all data-parallel ranks over the wall time since the last report.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from megatron.core.transformer.moe.moe_utils import clear_aux_losses_tracker, track_moe_metrics
from megatron.core.transformer.transformer_config import TransformerConfig

from primus_hydra.runtime.contracts import StepMetrics

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_BALANCE_LOSSES = {
    "aux_loss": "load_balancing_loss",
    "seq_aux_loss": "seq_load_balancing_loss",
    "global_aux_loss": "global_load_balancing_loss",
}
"""Megatron's kinds of balance loss, and the names under which its routers record them."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """One optimizer step: mean loss in nats per token, gradient norm before clipping, and the rate it was made with.

    A step that a float16 loss scaler skipped has no gradient norm.
    """

    step: int
    loss: float
    grad_norm: float | None
    lr: float
    extra: Mapping[str, float]


class Reporter:
    """Counts time and tokens between two reports; silent on ranks that do not own the loss.

    `peak_flops` is the peak of one rank in FLOP/s; None means that no utilisation is reported.
    """

    def __init__(
        self,
        report: Callable[[StepMetrics], None],
        *,
        owns_loss: bool,
        world_size: int,
        last_step: int,
        flops_per_token: int,
        peak_flops: float | None,
        device: torch.device,
    ) -> None:
        self._report = report
        self._owns_loss = owns_loss
        self._world_size = world_size
        self._last_step = last_step
        self._flops_per_token = flops_per_token
        self._peak_flops = peak_flops
        self._device = device
        self._last: StepMetrics | None = None
        self.begin(0)

    def begin(self, step: int) -> None:
        """Start counting time and steps: training goes on after `step`."""
        self._reported_step = step
        self._start_anew()

    def count(self, tokens: int) -> None:
        """Count the tokens that all ranks together read in a step."""
        self._tokens += tokens

    def report(self, result: StepResult) -> None:
        """Report a step."""
        if self._owns_loss:
            self._last = self._measure(result)
            self._report(self._last)
            unit = "GPU" if self._device.type == "cuda" else "rank"
            _log.info("%s", line_of(self._last, self._last_step, self._world_size, unit=unit))
        self.begin(result.step)

    def report_validation(self, step: int, loss: float) -> None:
        """Report the validation loss with the step's own metrics, once more, and leave its time out of the next."""
        if self._owns_loss:
            _log.info("step %d/%d  validation loss %.5f", step, self._last_step, loss)
            if self._last is not None and self._last.step == step:
                self._report(dataclasses.replace(self._last, validation_loss=loss))
        self._start_anew()

    def _measure(self, result: StepResult) -> StepMetrics:
        seconds = max(time.perf_counter() - self._since, 1e-9)
        tokens_per_s = self._tokens / seconds
        flops_per_rank = self._flops_per_token * tokens_per_s / self._world_size
        return StepMetrics(
            step=result.step,
            loss=result.loss,
            lr=result.lr,
            grad_norm=result.grad_norm,
            tokens_per_s=tokens_per_s,
            tflops_per_rank=flops_per_rank / 1e12,
            mfu=flops_per_rank / self._peak_flops if self._peak_flops else None,
            memory_gib=_peak_memory_gib(self._device),
            step_time_s=seconds / max(result.step - self._reported_step, 1),
            extra=result.extra,
        )

    def _start_anew(self) -> None:
        self._tokens = 0
        self._since = time.perf_counter()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)


def line_of(metrics: StepMetrics, last_step: int, world_size: int, *, unit: str) -> str:
    """Return the log line of a step; rates per rank, which is one GPU where there are any."""
    norm = "skipped" if metrics.grad_norm is None else f"{metrics.grad_norm:.4f}"
    return (
        f"step {metrics.step}/{last_step}  loss {metrics.loss:.5f}  grad norm {norm}  lr {metrics.lr:.3e}"
        f"  {metrics.tflops_per_rank or 0:.2f} TFLOP/s/{unit}"
        f"  {(metrics.tokens_per_s or 0) / world_size:,.0f} tokens/s/{unit}"
        f"  {metrics.step_time_s or 0:.3f} s"
    )


def _peak_memory_gib(device: torch.device) -> float | None:
    return torch.cuda.max_memory_reserved(device) / 2**30 if device.type == "cuda" else None


def balance_losses(transformer: TransformerConfig) -> list[str]:
    """Return the names of the auxiliary losses that the routers of this model record."""
    if transformer.num_moe_experts is None:
        return []
    kinds, weights = transformer.moe_router_load_balancing_type, transformer.moe_aux_loss_coeff
    pairs = zip(_as_list(kinds), _as_list(weights), strict=isinstance(kinds, list))
    names = [_BALANCE_LOSSES[kind] for kind, weight in pairs if weight and kind in _BALANCE_LOSSES]
    return names + (["z_loss"] if transformer.moe_z_loss_coeff else [])


def mean_balance_losses(transformer: TransformerConfig, names: list[str], microbatches: int) -> dict[str, float]:
    """Return the step's auxiliary losses, mean over layers and microbatches, and start anew; collective."""
    if not names:
        return {}
    means: dict[str, torch.Tensor] = {}
    track_moe_metrics(
        1 / microbatches,
        0,
        total_loss_dict=means,
        force_initialize=True,
        track_names=names,
        num_layers=transformer.num_layers,
        moe_layer_freq=transformer.moe_layer_freq,
    )
    return {name: float(value) for name, value in means.items()}


def forget_balance_losses() -> None:
    """Drop what the routers recorded since the last report."""
    clear_aux_losses_tracker()


def _as_list(value: _T | list[_T]) -> list[_T]:
    return value if isinstance(value, list) else [value]
