"""What can happen to a disk while checkpoints are written: called in a rank before its training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemWriter


def full(rank: int) -> None:
    """Have no room on the last rank for the files of step 4."""
    write = FileSystemWriter.write_data

    def without_room(self: Any, *args: Any) -> Any:
        folder = Path(self.path)
        if rank == int(os.environ["WORLD_SIZE"]) - 1 and folder.name == "step-4":
            # As torch says it where the file's own error came first.
            (folder / "begun").write_bytes(b"begun")
            try:
                raise OSError(28, "No space left on device", str(folder / "begun"))
            except OSError:
                raise RuntimeError("unexpected pos 704 vs 598")  # noqa: B904
        return write(self, *args)

    FileSystemWriter.write_data = without_room
