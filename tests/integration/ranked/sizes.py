"""How large a state was taken to be before its save, and how large its files are: noted in the run directory."""

from __future__ import annotations

import json
from pathlib import Path

from primus_hydra.runtime.save_room import SaveRoom

BEFORE = "tests.integration.ranked.sizes:note"
_completed = SaveRoom.completed


def note(rank: int) -> None:
    """Note both sizes of each complete save; called in a rank before its training."""

    def completed(self: SaveRoom, step: int) -> None:
        _completed(self, step)
        if rank == 0 and self._state_bytes is not None:
            sizes = {"taken": self._state_bytes, "files": self._saved_bytes}
            (self._paths.root / "sizes.json").write_text(json.dumps(sizes))

    SaveRoom.completed = completed  # type: ignore[method-assign]


def taken_too_large(run: Path) -> float:
    """Return by which part of the files' size the state was taken to be larger; negative if it was smaller."""
    sizes = json.loads((run / "sizes.json").read_text())
    return float(sizes["taken"] / sizes["files"] - 1)
