"""torchtitan's own trainer with two questions answered by the run: when to stop early, and when time starts.

Nothing of torchtitan's loop is written again here; only its hooks are overridden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchtitan.trainer import Trainer

from primus_hydra.backends.torchtitan.checkpointer import LedgerCheckpointManager


class StoppableTrainer(Trainer):  # type: ignore[misc]
    """torchtitan's trainer that ends after a step on which all ranks agree, with that step saved."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):  # type: ignore[misc]
        """`stop_agreed` is asked once after every step but the last, on every rank."""

        stop_agreed: Callable[[int], bool]

    def __init__(self, config: Config) -> None:
        self._started = False
        super().__init__(config)

    def should_continue_training(self) -> bool:
        """Whether another step follows; torchtitan asks before each one."""
        if self.step >= self.config.training.steps:
            return False
        if not self._started:
            self._started = True
            self.metrics_processor.begin(self.step)
            return True
        if self.config.stop_agreed(self.step):
            self._save_before_stop()
            return False
        return True

    def _save_before_stop(self) -> None:
        if isinstance(self.checkpointer, LedgerCheckpointManager):
            self.checkpointer.save_now(self.step)
