"""Saves that upstream has planned: written by threads of this rank, and complete once every rank has written.

Only one is on its way; the next one waits for it. A failed one ends the run with its reason, on all ranks, unless the
disk is full and a later save can try again (`runtime.save_room`). Whether there is room is judged by the newest
complete checkpoint: upstream makes the state while it saves, so before the first save its size is not known.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from primus_hydra.backends.megatron.agreement import Ranks
from primus_hydra.backends.megatron.training.checkpoints import CheckpointRecord
from primus_hydra.config.schema.training import CheckpointConfig
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.runtime.save_room import SaveRoom


@dataclass(kw_only=True)
class _Save:
    """A save on its way; `request` is upstream's, `error` is what this rank's writing raised."""

    step: int
    request: Any
    last: bool
    thread: threading.Thread | None = None
    error: Exception | None = None

    def write(self) -> None:
        try:
            self.request.async_fn(*self.request.async_fn_args)
        except Exception as error:  # raised again by the one who waits, on all ranks
            self.error = error


class Saves:
    """The saves of one training on one rank; every method is collective."""

    def __init__(self, context: RankContext, settings: CheckpointConfig) -> None:
        self.in_background = settings.async_mode != "disabled"
        self._ranks = Ranks()
        self._pulse = context.pulse
        self._room = SaveRoom(context, settings, self._ranks.gathered)
        self._record = CheckpointRecord(context, settings, self._ranks, self._room)
        self._step = 0
        self._last = False
        self._skipped: int | None = None
        self._pending: _Save | None = None

    def begin(self, step: int, *, last: bool) -> bool:
        """Make ready for the save of `step`; False if it is skipped for want of room. `last`: none follows it.

        Raises HostError if the one before failed, or there is no room for the last one.
        """
        self.finish()
        with self._pulse.section("checkpoint"):
            if not self._room.admits(step, last=last):
                self._skipped = step
                return False
            self._step, self._last = step, last
            self._record.prepare(step)
        return True

    def ends_with(self, step: int) -> bool:
        """Hear that the training stops after `step`, whose save may be on its way; False if it was skipped."""
        if self._pending is not None and self._pending.step == step:
            self._pending.last = True
        return self._skipped != step

    def schedule(self, request: Any) -> None:
        """Write what upstream planned, at once or while the training goes on; raises HostError as `finish`."""
        save = self._pending = _Save(step=self._step, request=request, last=self._last)
        if not self.in_background:
            with self._pulse.section("checkpoint"):
                save.write()
                self.finish()
            return
        # Nobody waits for a writer when a rank ends after a failure.
        save.thread = threading.Thread(target=save.write, name=f"save of step {save.step}", daemon=True)
        save.thread.start()

    def poll(self) -> None:
        """Notice that a save in the background has ended, or failed: HostError. Cheap while there is none."""
        if self._pending is not None and self._ranks.all_true(not _is_alive(self._pending.thread)):
            self.finish()

    def finish(self) -> None:
        """Wait for the save on its way on all ranks, and make it count; raises HostError if it failed on any."""
        if self._pending is None:
            return
        with self._pulse.section("checkpoint"):
            self._finish(self._pending)

    def _finish(self, save: _Save) -> None:
        self._pending = None
        if save.thread is not None:
            save.thread.join()
        if not self._room.succeeded(save.step, save.error, last=save.last):
            self._skipped = save.step
            return
        for function in save.request.finalize_fns:
            function()
        self._record.complete(save.step)


def _is_alive(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()
