"""The backends whose checkpoints can be converted, and how a job is made one of theirs on a processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from primus_hydra.config.instantiate import load_target
from primus_hydra.config.schema import JobConfig
from primus_hydra.convert.contract import NativeFormat
from primus_hydra.patching import PatchContext, load_patches, run_patches
from primus_hydra.runtime.contracts import BackendAdapter
from primus_hydra.weights.request import NativeKind


@dataclass(frozen=True, kw_only=True)
class _Backend:
    adapter: str
    format: str


_BACKENDS: Final[Mapping[NativeKind, _Backend]] = {
    "torchtitan": _Backend(
        adapter="primus_hydra.backends.torchtitan.adapter.TorchTitanAdapter",
        format="primus_hydra.backends.torchtitan.conversion.TorchTitanFormat",
    ),
    "megatron": _Backend(
        adapter="primus_hydra.backends.megatron.adapter.MegatronAdapter",
        format="primus_hydra.backends.megatron.conversion.MegatronFormat",
    ),
}
_imported: set[NativeKind] = set()


def open_format(kind: NativeKind, job: JobConfig) -> tuple[NativeFormat, str]:
    """Import a backend as a rank on a processor would, and return its format and version.

    Raises HostError for one that is not installed.
    """
    backend = _BACKENDS[kind]
    chosen = _on_cpu(job, kind, backend.adapter)
    adapter = load_target(backend.adapter, BackendAdapter, key="task.to")(chosen)  # type: ignore[type-abstract]
    adapter.setup_backend_path()
    version = adapter.detect_backend_version()
    if kind not in _imported:  # a module is patched before its first import
        load_patches(kind)
        run_patches("before_import", PatchContext(job=chosen, backend=kind, backend_version=version))
        adapter.prepare_backend()
        _imported.add(kind)
    return load_target(backend.format, NativeFormat, key="task.to")(chosen), version  # type: ignore[type-abstract]


def _on_cpu(job: JobConfig, kind: NativeKind, adapter: str) -> JobConfig:
    """Return the job on the backend; the user's own path to it stays where it is the composed one."""
    mine = job.backend.name == kind
    backend = replace(job.backend, name=kind, _target_=adapter, config={}, path=job.backend.path if mine else None)
    return replace(job, backend=backend, platform=replace(job.platform, name="cpu", vendor="cpu", gpus_per_node=0))
