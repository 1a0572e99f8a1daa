"""Saves and loads the core trainer's state; a checkpoint counts once all ranks have it on the disk.

A save in the background works on copies, and only one is on its way: the next one waits for it. Files of a save that
was cut short never count, since the ledger writes its manifest last; a failed save ends the run with its reason, unless
the disk is full and a later save can try again (`runtime.save_room`). Old checkpoints go only after a newer one is
complete.
"""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from megatron.core.optimizer import MegatronOptimizer
from torch.distributed.checkpoint.api import CheckpointException

from primus_hydra.backends.megatron.agreement import Ranks, words_for
from primus_hydra.backends.megatron.checkpoint_files import FileWriter, PlannedSave
from primus_hydra.backends.megatron.progress import Progress
from primus_hydra.backends.megatron.schedule import StepSchedule
from primus_hydra.backends.megatron.sections import CoreConfig
from primus_hydra.backends.megatron.sharded_state import ShardedState, part_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import HostError
from primus_hydra.run.retention import finished_steps, retire, superfluous
from primus_hydra.run.space import ran_out
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.runtime.save_room import SaveRoom

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Save:
    """A save on its way: `error` is what this rank's writing raised, `last` says that none follows."""

    step: int
    planned: PlannedSave
    last: bool
    error: Exception | None = None
    thread: threading.Thread | None = field(default=None)

    def write(self) -> None:
        try:
            self.planned.write()
        except Exception as error:  # raised again by the one who waits, on all ranks
            self.error = error

    def start(self) -> None:
        # Nobody waits for a writer when a rank ends after a failure.
        self.thread = threading.Thread(target=self.write, name=f"save of step {self.step}", daemon=True)
        self.thread.start()

    def is_written(self) -> bool:
        return self.thread is None or not self.thread.is_alive()

    def wait(self) -> None:
        if self.thread is not None:
            self.thread.join()


class Checkpointer:
    """The checkpoints of one run on one rank. All methods but `give_up` are collective."""

    def __init__(
        self,
        *,
        job: JobConfig,
        config: CoreConfig,
        context: RankContext,
        chunks: list[Any],
        optimizer: MegatronOptimizer,
        scheduler: StepSchedule,
        progress: Progress,
    ) -> None:
        self._settings = job.checkpoint
        self._last_step = job.training.steps
        self._context = context
        self._ranks = Ranks()
        self._room = SaveRoom(context, job.checkpoint, self._ranks.gathered)
        self._files = FileWriter(fully_parallel=config.checkpoint.fully_parallel_save)
        self._state = ShardedState(
            config=config,
            context=context,
            chunks=chunks,
            optimizer=optimizer,
            scheduler=scheduler,
            progress=progress,
            ranks=self._ranks,
            seed=job.training.seed,
        )
        self._pending: _Save | None = None
        self._complete: set[int] = set()
        self._deletion: threading.Thread | None = None
        self._retired: list[Path] = []

    def load(self, folder: Path, *, weights_only: bool) -> None:
        """Restore everything, or the weights alone, whatever layout saved them.

        Raises UserError if the checkpoint is another model's or its optimizer cannot be split anew, HostError if its
        files cannot be read; all ranks raise the same.
        """
        with self._context.pulse.section("checkpoint"):
            if weights_only:
                self._state.load_weights(folder)
                return
            self._state.load_all(folder)
        self._complete.add(self._state.progress.step)

    def save(self, step: int) -> None:
        """Save `step`, in the background if so configured; raises HostError if this save or the one before failed.

        Without room on the disk it is skipped, unless it is the last step.
        """
        if step not in self._complete and self._settings.enable:
            self._save(step, background=self._settings.async_mode != "disabled", last=step == self._last_step)

    def save_now(self, step: int) -> None:
        """Make sure that `step` is on the disk when this returns; raises HostError."""
        if self._pending is not None and self._pending.step == step:
            self._pending.last = True
            self._finish()
        elif step not in self._complete and self._settings.enable:
            self._save(step, background=False, last=True)

    def poll(self) -> None:
        """Notice that a save in the background has ended, or failed: HostError. Cheap while there is none."""
        if self._pending is not None and self._ranks.all_true(self._pending.is_written()):
            self._finish()

    def close(self) -> None:
        """Wait for what is on its way; raises HostError if it failed."""
        self._finish()
        if self._deletion is not None:
            self._deletion.join()

    def give_up(self) -> None:
        """Forget a save on its way: other ranks may be gone, and it takes all of them to complete it.

        A failure that all ranks meet in the same step is no such case: who knows of one calls `close`.
        """
        self._pending = None

    def _save(self, step: int, *, background: bool, last: bool) -> None:
        with self._context.pulse.section("checkpoint"):
            self._save_in_section(step, background=background, last=last)

    def _save_in_section(self, step: int, *, background: bool, last: bool) -> None:
        self._finish()
        state = self._measured_state() if self._room.unmeasured else None
        if not self._room.admits(step, last=last):
            return
        folder = self._context.paths.checkpoint(step)
        self._require(step, self._ranks.on_first(lambda: self._make_folder(folder)))
        planned = self._plan(step, state or self._state.to_save(), folder, copies=background)
        self._pending = _Save(step=step, planned=planned, last=last)
        if background:
            self._pending.start()
            return
        self._pending.write()
        self._finish()

    def _finish(self) -> None:
        """Wait for the save on its way on all ranks, and make it count."""
        if self._pending is None:
            return
        with self._context.pulse.section("checkpoint"):
            self._finish_in_section(self._pending)

    def _finish_in_section(self, save: _Save) -> None:
        self._pending = None
        save.wait()
        if not self._room.succeeded(save.step, save.error, last=save.last):
            return
        self._complete_files(save)
        # The disk may fill up as late as this: then the save is given up as one whose files were not written.
        if not self._room.succeeded(save.step, self._marked_complete(save.step), last=save.last):
            return
        self._complete.add(save.step)
        self._room.completed(save.step)
        self._delete_older(save.step)

    def _marked_complete(self, step: int) -> OSError | None:
        try:
            self._context.ledger.completed(step)
        except OSError as error:  # of the manifest, on the first rank alone
            return error
        return None

    def _measured_state(self) -> dict[str, Any]:
        """Return the state, and tell the room its size: to make it twice would cost the ranks a second exchange."""
        state = self._state.to_save()
        self._room.measure(part_of(state, self._context.rank))
        return state

    def _make_folder(self, folder: Path) -> None:
        """Create the folder of a checkpoint, empty: what another save left there would count as part of this one."""
        old = retire(folder)
        if old is not None:
            self._retired.append(old)
        folder.mkdir(parents=True)

    def _plan(self, step: int, state: dict[str, Any], folder: Path, *, copies: bool) -> PlannedSave:
        try:
            return self._files.plan(state, folder, copies=copies)
        except OSError as error:  # on one rank alone; the others notice that it leaves
            raise self._failed_alone(step, error) from error

    def _complete_files(self, save: _Save) -> None:
        try:
            save.planned.finish()
        except (OSError, CheckpointException) as error:
            raise self._failed_alone(save.step, error) from error

    def _failed_alone(self, step: int, error: OSError | CheckpointException) -> HostError:
        if ran_out(error):
            self._room.remove(step)
        return self._room.failed(step, words_for(error))

    def _require(self, step: int, failure: str | None) -> None:
        if failure is not None:
            raise self._room.failed(step, failure)

    def _delete_older(self, step: int) -> None:
        if self._context.rank != 0:
            return
        paths, settings = self._context.paths, self._settings
        known = {*finished_steps(paths), *self._complete}
        old = superfluous(known, step, keep=settings.keep, keep_every=settings.keep_every)
        retired = [retire(paths.checkpoint(other)) for other in old]
        folders, self._retired = [*self._retired, *filter(None, retired)], []
        if folders:
            self._delete(folders)

    def _delete(self, folders: list[Path]) -> None:
        if self._deletion is not None:
            self._deletion.join()
        # A large checkpoint on a shared file system takes minutes to delete.
        self._deletion = threading.Thread(target=_delete_all, args=(folders,), name="delete checkpoints", daemon=True)
        self._deletion.start()


def _delete_all(folders: list[Path]) -> None:
    for folder in folders:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            _log.warning("an old checkpoint could not be deleted: %s", error)
