"""What the run sees of upstream's loop: every step is counted, reported, measured and, if all agree, the last one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from primus_hydra.backends.megatron.forward import LOSS_SUM
from primus_hydra.backends.megatron.metrics import Reporter, StepResult
from primus_hydra.backends.megatron.profiling import Profiler
from primus_hydra.backends.megatron.progress import Progress
from primus_hydra.backends.megatron.schedule import StepSchedule
from primus_hydra.backends.megatron.validation import Validator, measures_at
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem, UserError


@dataclass(kw_only=True)
class Watch:
    """Follows the steps of one training on one rank; `validator` is None without validation."""

    job: JobConfig
    args: Any
    progress: Progress
    schedule: StepSchedule
    reporter: Reporter
    profiler: Profiler
    validator: Validator | None
    stop_agreed: Callable[[int], bool]
    measured_step: int | None = None
    skipped: int = 0

    def begin(self) -> None:
        """Start counting where the checkpoint, if there is one, ended."""
        self._count(self.args.iteration)
        self.schedule.go_to(self.progress.step)
        self.reporter.begin(self.progress.step)

    def stepped(
        self,
        losses: Mapping[str, torch.Tensor],
        step: int,
        grad_norm: float | None,
        loss_scale: float,
        *,
        skipped: bool,
    ) -> None:
        """Take note of a step, which upstream has printed."""
        self.reporter.count((self.args.consumed_train_samples - self.progress.consumed_samples) * self._seq_length)
        self._count(step)
        self.skipped += skipped
        norm = None if skipped or grad_norm is None else float(grad_norm)
        loss = float(losses[LOSS_SUM]) if losses else math.nan
        if losses:
            _require_finite(step, "loss", loss)
        if norm is not None:
            _require_finite(step, "gradient norm", norm)
        if self._is_reported(step):
            extra = self._extra(loss_scale)
            self.reporter.report(StepResult(step=step, loss=loss, grad_norm=norm, lr=self.schedule.lr, extra=extra))
        self.schedule.go_to(step)
        self.profiler.step()

    def measure(self, chunks: list[Any]) -> None:
        """Measure the validation loss of the present step, if it is not known yet; collective."""
        step = self.progress.step
        if self.validator is None or self.measured_step == step:
            return
        self.measured_step = step
        self.reporter.report_validation(step, self.validator.measure(chunks))

    def stops(self, step: int) -> bool:
        """Whether all ranks agreed to stop after `step`; collective. The last step is not asked about."""
        return step < self.args.train_iters and self.stop_agreed(step)

    @property
    def _seq_length(self) -> int:
        return self.job.training.seq_length

    def _count(self, step: int) -> None:
        self.progress.step = step
        self.progress.consumed_samples = self.args.consumed_train_samples
        self.progress.tokens = self.progress.consumed_samples * self._seq_length

    def _is_reported(self, step: int) -> bool:
        steps, settings = self.job.training.steps, self.job.validation
        measured = settings.enable and measures_at(step, settings.every, steps)
        return measured or step == steps or step % self.job.metrics.log_every == 0

    def _extra(self, loss_scale: float) -> dict[str, float]:
        extra = {"tokens_seen": float(self.progress.tokens)}
        if self.args.fp16:
            extra |= {"loss_scale": float(loss_scale), "skipped_steps": float(self.skipped)}
        return extra


def _require_finite(step: int, name: str, value: float) -> None:
    if not math.isfinite(value):
        what = f"the {name} of step {step} is {value}: the training has diverged, and this step is not saved"
        raise UserError(Problem(key="optimizer.lr", what=what, hint="lower it, or resume from an earlier checkpoint"))
