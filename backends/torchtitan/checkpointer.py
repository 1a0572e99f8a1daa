"""torchtitan's checkpoint manager with our ledger: a checkpoint counts once all ranks have it on the disk.

Differs from torchtitan in what is deleted and what is loaded. Old checkpoints go only after a newer one is complete, so
a good one always remains; which checkpoint is resumed is the runtime's choice, never the newest folder by name. A save
for which the disk has no room is skipped, unless none follows it (`runtime.save_room`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.checkpointer.base import MODEL
from torchtitan.components.checkpointer.dcp import AsyncMode

from primus_hydra.backends.torchtitan.agreement import Ranks
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.retention import finished_steps, retire, superfluous
from primus_hydra.runtime.save_room import Gather, SaveRoom, StatePart


class LedgerCheckpointManager(CheckpointManager):  # type: ignore[misc]
    """Reports complete checkpoints, keeps the newest ones, and can save out of turn."""

    save_future: Future[Any] | None

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):  # type: ignore[misc]
        """`completed` is told each complete step, on every rank; `room` makes the judge of the disk.

        `keep` is how many complete ones stay (0: all), and those at multiples of `keep_every` stay for good.
        """

        completed: Callable[[int], None]
        room: Callable[[Gather], SaveRoom]
        keep: int = 0
        keep_every: int | None = None

    def __init__(self, config: Config, **components: Any) -> None:
        super().__init__(config, **components)
        self._completed = config.completed
        self._keep = config.keep
        self._keep_every = config.keep_every
        self._ranks = Ranks()
        self._room = config.room(self._ranks.gathered)
        self._pending: int | None = None
        self._last = False
        self._complete_steps: set[int] = set()

    def save_now(self, step: int) -> None:
        """Make sure that `step` is completely on the disk when this returns; raises HostError."""
        if not self.enable or self.load_only:
            return
        if self._pending == step:
            self._last = True
            self.maybe_wait_for_saving()
        elif step not in self._complete_steps:
            self.save(step, last_step=True)

    def export_weights(self, folder: Path, files: Mapping[str, int] | None) -> None:
        """Write the weights alone as Hugging Face safetensors, in the export number format; collective.

        `files` gives the number of each tensor's file, from 1; None puts everything into one file.
        """
        self.sd_adapter.fqn_to_index_mapping = None if files is None else dict(files)
        weights = {name: self._exported(name, value) for name, value in self.states[MODEL].state_dict().items()}
        self.dcp_save(weights, checkpoint_id=str(folder), async_mode=AsyncMode.DISABLED, to_hf=True)

    def give_up(self) -> None:
        """Stop the helper thread without waiting for a save: other ranks may be gone, and it takes all of them."""
        self._pending, self.save_future = None, None
        super()._close()

    def _exported(self, name: str, value: Any) -> Any:
        # The bias that balances experts is float32 in every Hugging Face folder.
        fixed = name.endswith(".expert_bias_E") or not (isinstance(value, torch.Tensor) and value.is_floating_point())
        return value if fixed else value.to(self.export_dtype)

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        if not self._should_save(curr_step, last_step):
            return False
        self.maybe_wait_for_saving()
        if self._room.unmeasured:
            self._room.measure(_part_of(self._flattened_model_states_sd()))
        if not self._room.admits(curr_step, last=last_step):
            return False
        self._pending, self._last = curr_step, last_step
        try:
            super()._save(curr_step, last_step)
        except (CheckpointException, OSError) as error:  # torch raises it on all ranks
            return self._ended(error)
        return self.save_future is not None or self._ended(None)

    def _maybe_wait_for_staging(self) -> None:
        super()._maybe_wait_for_staging()
        # Called in every step: the moment to notice that a save in the background has ended. All ranks notice it in
        # the same one, or those that have would wait for the others.
        if self.save_future is not None and all(self._ranks.gathered(self.save_future.done())):
            self.maybe_wait_for_saving()

    def _wait_for_saving(self) -> None:
        try:
            super()._wait_for_saving()
        except (CheckpointException, OSError) as error:
            self.save_future = None
            self._ended(error)
        else:
            self._ended(None)

    def _close(self) -> None:
        self.maybe_wait_for_saving()
        super()._close()

    def _ended(self, error: BaseException | None) -> bool:
        """Make a save count that all ranks have written; False if it is given up. Collective. Raises HostError."""
        step, self._pending = self._pending, None
        if step is None:
            raise RuntimeError("a save ended that did not begin")
        failure = error if error is not None else self._marked_complete(step)
        if not self._room.succeeded(step, failure, last=self._last):
            return False
        self._complete_steps.add(step)
        self._room.completed(step)
        self._delete_older(step)
        return True

    def _marked_complete(self, step: int) -> OSError | None:
        try:
            self._completed(step)
        except OSError as error:  # of the manifest, on the first rank alone
            return error
        return None

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


def _part_of(state: Mapping[str, Any]) -> StatePart:
    """Return how much is written of a state, whose sharded tensors are told whole, as are those that ranks share.

    Ranks whose tensors have the same names hold the same ones, or pieces of them: a stage of a pipeline has its own.
    """
    leaves = dict(_leaves(state))
    tensors = {name: value for name, value in leaves.items() if isinstance(value, torch.Tensor)}
    return StatePart(
        name=hashlib.sha256("\0".join(sorted(tensors)).encode()).hexdigest(),
        tensor_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
        tensors=len(tensors),
        values=len(leaves) - len(tensors),
    )


def _leaves(state: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in state.items():
        inner = value.state_dict() if hasattr(value, "state_dict") else value
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner
