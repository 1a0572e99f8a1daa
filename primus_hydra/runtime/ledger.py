"""The ledger of complete checkpoints: rank 0 writes the manifest once every rank has finished its files."""

from __future__ import annotations

from collections.abc import Mapping

from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.paths import RunPaths


class FileLedger:
    """Marks checkpoints complete in the run directory.

    The trainer calls `completed` only after all ranks have written; `extra` goes into every manifest (world size,
    backend version). Other ranks' calls do nothing.
    """

    def __init__(self, paths: RunPaths, rank: int, extra: Mapping[str, object] | None = None) -> None:
        self._paths = paths
        self._rank = rank
        self._extra = dict(extra or {})

    def completed(self, step: int) -> None:
        """Write the manifest of the checkpoint at `step`; raises OSError when it cannot reach the disk."""
        if self._rank == 0:
            write_manifest(self._paths.checkpoint(step), step, self._extra)
