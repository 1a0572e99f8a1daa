"""The training loop: optimizer steps until the last one, or until all ranks agree to stop.

A loss or gradient norm that is not a number ends the run with the step's name, before it can be saved. A float16 step
whose gradients overflowed is no such case: the loss scaler skips it, which is counted and reported.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from megatron.core.optimizer import MegatronOptimizer

from primus_hydra.backends.megatron.batch_size import BatchSize
from primus_hydra.backends.megatron.batches import BatchSource
from primus_hydra.backends.megatron.checkpointer import Checkpointer
from primus_hydra.backends.megatron.forward import mean_loss
from primus_hydra.backends.megatron.metrics import (
    Reporter,
    StepResult,
    balance_losses,
    forget_balance_losses,
    mean_balance_losses,
)
from primus_hydra.backends.megatron.microbatches import Pass
from primus_hydra.backends.megatron.optimizer import whole_parameters
from primus_hydra.backends.megatron.profiling import Profiler
from primus_hydra.backends.megatron.progress import Progress
from primus_hydra.backends.megatron.schedule import StepSchedule
from primus_hydra.backends.megatron.sections import CoreConfig
from primus_hydra.backends.megatron.validation import Validator, measures_at
from primus_hydra.config.layout import Layout
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.runtime.pulse import PulseWriter

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Parts:
    """What one rank trains with. `validator` is None without validation, `chunks` are wrapped."""

    chunks: list[Any]
    optimizer: MegatronOptimizer
    schedule: StepSchedule
    progress: Progress
    source: BatchSource
    sizes: BatchSize
    run: Pass
    validator: Validator | None
    checkpointer: Checkpointer
    reporter: Reporter
    pulse: PulseWriter


class Loop:
    """Trains: `run` once."""

    def __init__(self, config: CoreConfig, job: JobConfig, parts: Parts) -> None:
        self._config = config
        self._job = job
        self._parts = parts
        self._skipped = 0
        self._balance_losses = balance_losses(config.transformer)

    def run(self, profiler: Profiler) -> None:
        """Train to the end, or to an agreed stop, whose step is saved when this returns.

        Raises UserError if the training diverges. All ranks meet that in the same step, so a save in the background is
        completed first: it is of a step before, and the one to go on from.
        """
        try:
            self._run(profiler)
        except _Diverged:
            self._complete_save()
            raise

    def _run(self, profiler: Profiler) -> None:
        parts, last = self._parts, self._job.training.steps
        parts.reporter.begin(parts.progress.step)
        with profiler, _collected_every(self._config.loop.garbage_collect_every) as collect:
            while parts.progress.step < last:
                self._step()
                profiler.step()
                collect(parts.progress.step)
                if parts.progress.step < last and self._config.stop_agreed(parts.progress.step):
                    self._save(now=True)
                    return

    def _complete_save(self) -> None:
        try:
            self._parts.checkpointer.close()
        except HostError as error:  # the divergence is what to tell
            _log.error("%s", error)

    def _step(self) -> None:
        parts = self._parts
        layout = parts.sizes.at(parts.progress.consumed_samples)
        parts.schedule.go_to(parts.progress.step)
        loss, grad_norm = self._update(layout)
        self._count(layout)
        result = self._result(loss, grad_norm, layout)
        if self._is_reported(result.step):
            parts.reporter.report(result)
        self._validate(result.step)
        parts.schedule.go_to(parts.progress.step)
        parts.checkpointer.poll()
        if result.step % self._job.checkpoint.every == 0 or result.step == self._job.training.steps:
            self._save()

    def _update(self, layout: Layout) -> tuple[float, float | None]:
        """Make one optimizer step; return its loss, and its gradient norm unless the step was skipped."""
        parts, step = self._parts, self._parts.progress.step + 1
        for chunk in parts.chunks:
            chunk.zero_grad_buffer()
        parts.optimizer.zero_grad()
        collected = parts.run(parts.source, layout, consumed_samples=parts.progress.consumed_samples)
        updated, grad_norm, _ = parts.optimizer.step()
        loss, tokens = mean_loss(collected, parts.run.device)
        _require_finite(step, "loss", loss, tokens)
        if not updated:
            self._skipped += 1
            return loss, None
        _require_finite(step, "gradient norm", float(grad_norm), tokens)
        return loss, float(grad_norm)

    def _count(self, layout: Layout) -> None:
        progress, tokens = self._parts.progress, layout.global_batch_size * self._job.training.seq_length
        progress.step += 1
        progress.consumed_samples += layout.global_batch_size
        progress.tokens += tokens
        self._parts.reporter.count(tokens)

    def _result(self, loss: float, grad_norm: float | None, layout: Layout) -> StepResult:
        step, lr = self._parts.progress.step, self._parts.schedule.lr
        extra = self._extra(layout) if self._is_reported(step) else {}
        forget_balance_losses()
        return StepResult(step=step, loss=loss, grad_norm=grad_norm, lr=lr, extra=extra)

    def _extra(self, layout: Layout) -> dict[str, float]:
        extra = {"tokens_seen": float(self._parts.progress.tokens)}
        if self._config.batch.rampup is not None:
            extra["global_batch_size"] = float(layout.global_batch_size)
        if self._config.transformer.fp16:
            extra["loss_scale"] = float(self._parts.optimizer.get_loss_scale())
            extra["skipped_steps"] = float(self._skipped)
        return extra | mean_balance_losses(self._config.transformer, self._balance_losses, layout.microbatches)

    def _is_reported(self, step: int) -> bool:
        last = step == self._job.training.steps
        return last or step % self._job.metrics.log_every == 0 or self._is_validated(step)

    def _is_validated(self, step: int) -> bool:
        settings = self._job.validation
        return settings.enable and measures_at(step, settings.every, self._job.training.steps)

    def _validate(self, step: int) -> None:
        parts = self._parts
        if parts.validator is None or not self._is_validated(step):
            return
        with parts.pulse.section("validation"), whole_parameters(self._config, parts.chunks):
            loss = parts.validator.measure(parts.chunks)
        forget_balance_losses()
        parts.reporter.report_validation(step, loss)

    def _save(self, *, now: bool = False) -> None:
        if not self._job.checkpoint.enable:
            return
        step, checkpointer = self._parts.progress.step, self._parts.checkpointer
        with whole_parameters(self._config, self._parts.chunks):
            checkpointer.save_now(step) if now else checkpointer.save(step)


class _Diverged(UserError):
    """A number that all ranks share is none any more: raised by all of them in the same step."""


def _require_finite(step: int, name: str, value: float, tokens: int) -> None:
    if math.isfinite(value):
        return
    if tokens == 0:
        raise _Diverged(Problem(key="data", what=f"no token of step {step} counts: all are masked"))
    what = f"the {name} of step {step} is {value}: the training has diverged, and this step is not saved"
    raise _Diverged(Problem(key="optimizer.lr", what=what, hint="lower it, or resume from an earlier checkpoint"))


@contextmanager
def _collected_every(every: int | None) -> Iterator[Any]:
    """Collect garbage on all ranks in the same steps, instead of whenever one of them happens to."""
    if every is None:
        yield lambda step: None
        return
    gc.disable()
    gc.collect(1)
    try:
        yield lambda step: gc.collect(1) if step % every == 0 else None
    finally:
        gc.enable()
