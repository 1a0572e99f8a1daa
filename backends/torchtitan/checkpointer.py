"""torchtitan's checkpoint manager with our ledger: a checkpoint counts once all ranks have it on the disk.

Differs from torchtitan in what is deleted and what is loaded. Old checkpoints go only after a newer one is complete, so
a good one always remains; which checkpoint is resumed is the runtime's choice, never the newest folder by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.checkpointer.base import MODEL
from torchtitan.components.checkpointer.dcp import AsyncMode

from primus_hydra.run.paths import RunPaths
from primus_hydra.run.retention import finished_steps, retire, superfluous


class LedgerCheckpointManager(CheckpointManager):  # type: ignore[misc]
    """Reports complete checkpoints, keeps the newest ones, and can save out of turn."""

    save_future: Future[Any] | None

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):  # type: ignore[misc]
        """`completed` is told each complete step.

        `keep` is how many complete ones stay (0: all), and those at multiples of `keep_every` stay for good.
        """

        completed: Callable[[int], None]
        keep: int = 0
        keep_every: int | None = None

    def __init__(self, config: Config, **components: Any) -> None:
        super().__init__(config, **components)
        self._completed = config.completed
        self._keep = config.keep
        self._keep_every = config.keep_every
        self._pending: int | None = None
        self._complete_steps: set[int] = set()

    def save_now(self, step: int) -> None:
        """Make sure that `step` is completely on the disk when this returns."""
        if not self.enable or self.load_only:
            return
        if self._pending == step:
            self.maybe_wait_for_saving()
        elif step not in self._complete_steps:
            self.save(step, last_step=True)

    def export_weights(self, folder: Path, files: Mapping[str, int] | None) -> None:
        """Write the weights alone as Hugging Face safetensors, in the export number format; collective.

        `files` gives the number of each tensor's file, from 1; None puts everything into one file.
        """
        self.sd_adapter.fqn_to_index_mapping = None if files is None else dict(files)
        weights = {name: self._exported(value) for name, value in self.states[MODEL].state_dict().items()}
        self.dcp_save(weights, checkpoint_id=str(folder), async_mode=AsyncMode.DISABLED, to_hf=True)

    def give_up(self) -> None:
        """Stop the helper thread without waiting for a save: its ranks may be gone."""
        self._pending, self.save_future = None, None
        super()._close()

    def _exported(self, value: Any) -> Any:
        return value.to(self.export_dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        saved: bool = super()._save(curr_step, last_step)
        if saved:
            self._pending = curr_step
            if self.save_future is None:
                self._note_complete()
        return saved

    def _maybe_wait_for_staging(self) -> None:
        super()._maybe_wait_for_staging()
        # Called in every step: the moment to notice that a save in the background has ended.
        if self.save_future is not None and self.save_future.done():
            self.maybe_wait_for_saving()

    def _wait_for_saving(self) -> None:
        super()._wait_for_saving()
        self._note_complete()

    def _close(self) -> None:
        self.maybe_wait_for_saving()
        super()._close()

    def _note_complete(self) -> None:
        if self._pending is None:
            return
        step, self._pending = self._pending, None
        self._complete_steps.add(step)
        self._completed(step)
        self._delete_older(step)

    def _find_load_step(self, folder: str = "") -> int:
        return -1

    def _purge_stale_checkpoints(self) -> None:
        """Nothing: torchtitan asks at the start of a save, when the new checkpoint is not there yet."""

    def _delete_older(self, step: int) -> None:
        if not self._should_purge():
            return
        paths = RunPaths(Path(self.folder).parent)
        steps = {*finished_steps(paths), *self._complete_steps}
        for old in superfluous(steps, step, keep=self._keep, keep_every=self._keep_every):
            retired = retire(paths.checkpoint(old))
            if retired is not None:
                self.purge_queue.put(str(retired))
