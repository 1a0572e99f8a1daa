"""Upstream's checkpoints in the run's folder: where they lie, when they are complete, and which are deleted.

What is in a checkpoint is upstream's. Its own names (`iter_0000010`, a file with the latest iteration) are not used:
the run knows its checkpoints by folder and manifest, and which of them is resumed is not upstream's choice.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from primus_hydra.backends.megatron.agreement import Ranks
from primus_hydra.config.schema.training import CheckpointConfig
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.retention import finished_steps, retire, superfluous
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.runtime.save_room import SaveRoom


class CheckpointPlaces:
    """Answers for the functions that upstream asks for names; `start` is the folder of the weights to begin with."""

    def __init__(self, paths: RunPaths, start: str | None) -> None:
        self._paths = paths
        self._start = start

    def name(self, root: str, iteration: int, *rest: Any, **named: Any) -> str:
        """Return the folder of a checkpoint."""
        return str(self.folder(root, iteration))

    def folder(self, root: str, iteration: int) -> Path:
        """Return the folder of a checkpoint below `root`, which is the run's or the start's."""
        return Path(root) if root == self._start else self._paths.checkpoint(iteration)

    def tracker(self, root: str) -> str:
        """Return where upstream writes the latest iteration: nowhere."""
        return os.devnull


class CheckpointRecord:
    """Makes room for checkpoints, tells the run which are complete, and deletes old ones once a newer one is."""

    def __init__(self, context: RankContext, settings: CheckpointConfig, ranks: Ranks, room: SaveRoom) -> None:
        self._context = context
        self._settings = settings
        self._ranks = ranks
        self._room = room

    def prepare(self, step: int) -> None:
        """Remove what a save that was cut off left in the folder of `step`; collective. Raises HostError."""
        folder = self._context.paths.checkpoint(step)
        self._require(step, self._ranks.on_first(lambda: _remove(folder)))

    def complete(self, step: int) -> None:
        """Note that every rank has written `step`; collective. Raises HostError."""
        self._require(step, self._ranks.on_first(lambda: self._complete(step)))
        if not self._context.is_main:
            self._context.ledger.completed(step)
        self._room.completed(step)

    def _require(self, step: int, failure: str | None) -> None:
        if failure is not None:
            raise self._room.failed(step, failure)

    def _complete(self, step: int) -> None:
        paths, settings = self._context.paths, self._settings
        self._context.ledger.completed(step)
        for old in superfluous(finished_steps(paths), step, keep=settings.keep, keep_every=settings.keep_every):
            _remove(paths.checkpoint(old))


def _remove(folder: Path) -> None:
    retired = retire(folder)
    if retired is not None:
        shutil.rmtree(retired, ignore_errors=True)
