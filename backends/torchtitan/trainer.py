"""The pretraining stage: our trainer contract around torchtitan's trainer."""

from __future__ import annotations

import gc
import logging
from typing import Any

import torch.distributed
from torchtitan.observability import structured_logger

from primus_hydra.backends.torchtitan.export import export_hf
from primus_hydra.backends.torchtitan.loop import StoppableTrainer
from primus_hydra.config.schema import JobConfig
from primus_hydra.runtime.contracts import BaseTrainer, RankContext
from primus_hydra.runtime.pulse import in_section

_log = logging.getLogger(__name__)


class PretrainTrainer(BaseTrainer):
    """Builds torchtitan's trainer from its configuration and runs it; the checkpoint is loaded when training starts."""

    def __init__(self, native: Any, job: JobConfig, context: RankContext) -> None:
        super().__init__(native, job, context)
        self.trainer: StoppableTrainer | None = None

    def setup(self) -> None:
        """Start torchtitan's trace of phases, if it is asked for."""
        structured_logger.init_structured_logger(
            source="training",
            output_dir=self.native.dump_folder,
            enable=self.native.debug.enable_structured_logging,
        )

    def init(self) -> None:
        """Build process groups, model, optimizer and data."""
        trainer = self.trainer = self.native.build()
        # What the run is told of: a rank in a save, a load or a validation may take longer than one in a step.
        told, checkpointer = self.context.pulse, trainer.checkpointer
        for name in ("save", "load", "maybe_wait_for_saving"):
            setattr(checkpointer, name, in_section(told, "checkpoint", getattr(checkpointer, name)))
        if self.native.validator.enable:
            trainer.validator.validate = in_section(told, "validation", trainer.validator.validate)

    def train(self) -> None:
        """Train, or write a seed checkpoint if that is what the configuration asks for."""
        trainer = self._built
        if self.native.checkpoint.create_seed_checkpoint:
            trainer.checkpointer.save(curr_step=0, last_step=True)
            return
        trainer.train()
        # The last save may still be on its way; nothing is exported from a run that was stopped early.
        trainer.checkpointer.maybe_wait_for_saving()
        if self.job.checkpoint.export_hf and self.step == self.native.training.steps:
            export_hf(trainer.checkpointer, self.job, self.context)

    def cleanup(self, on_error: bool = False) -> None:
        """Release everything. After a failure nothing is waited for: other ranks may be gone."""
        try:
            if self.trainer is not None and on_error:
                self._give_up(self.trainer)
            elif self.trainer is not None:
                self.trainer.close()
        finally:
            _end_process_groups(abort=on_error)
            # torchtitan collects garbage on its own schedule and leaves the collector off.
            gc.enable()

    @property
    def step(self) -> int:
        """Steps finished so far, those of earlier attempts included."""
        return self.trainer.step if self.trainer is not None else 0

    @property
    def _built(self) -> StoppableTrainer:
        if self.trainer is None:
            raise RuntimeError("init() must run before train()")
        return self.trainer

    def _give_up(self, trainer: StoppableTrainer) -> None:
        checkpointer = getattr(trainer, "checkpointer", None)
        if checkpointer is not None and checkpointer.enable:
            checkpointer.give_up()
        metrics = getattr(trainer, "metrics_processor", None)
        if metrics is not None:
            metrics.close()


def _end_process_groups(*, abort: bool) -> None:
    if not torch.distributed.is_initialized():
        return
    if not abort:
        torch.distributed.destroy_process_group()
        return
    try:
        torch.distributed.distributed_c10d._abort_process_group()
    except Exception as error:  # the failure that led here matters more than this one
        _log.warning("process groups could not be aborted: %s", error)
