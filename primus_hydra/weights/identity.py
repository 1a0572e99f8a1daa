"""What decides the bytes of a conversion, as plain data: the same words mean the same files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from primus_hydra.config.schema import JobConfig
from primus_hydra.weights.request import ConvertRequest

_NO_PART: Final = ("name", "source", "path", "parameters")
"""Keys of a model that say where it comes from, not what it is."""


def conversion_identity(request: ConvertRequest, job: JobConfig, version: str) -> dict[str, Any]:
    """Return what two runs of one conversion have in common; `version` is the backend's."""
    model = {name: value for name, value in asdict(job.model).items() if name not in _NO_PART}
    return {
        "source": request.source,
        "source_kind": request.source_kind,
        "source_files": _files(Path(request.source)),
        "to": request.to,
        "dtype": request.dtype,
        "shard_bytes": request.shard_bytes,
        "backend_version": version,
        "model": model,
    }


def _files(folder: Path) -> dict[str, list[int]]:
    """Return size and time of change (ns) of every file; a source that was written anew is another one."""
    found = sorted((file.name, file.stat()) for file in folder.iterdir() if file.is_file())
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in found}
