"""What a patch may look at: the job, the versions, and the backend's objects as far as they exist in its phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from primus_hydra.config.schema import JobConfig
from primus_hydra.patching.versions import Installed

Phase = Literal["before_import", "build_args", "setup", "before_train", "after_train", "convert"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, kw_only=True)
class PatchContext:
    """The moment at which patches are considered.

    `native` is the backend's configuration object and exists from `build_args` on; `trainer` exists from `setup` on.
    Both are None before, and in `convert`. A version is None where the package is absent or its version unknown.
    """

    job: JobConfig
    backend: str
    backend_version: str | None
    backend_commit: str | None = None
    torch_version: str | None = None
    phase: Phase = "before_import"
    stage: str = "pretrain"
    native: Any = None
    trainer: Any = None

    @property
    def installed(self) -> Installed:
        """The versions alone, as version rules read them."""
        return Installed(
            backend=self.backend,
            backend_version=self.backend_version,
            backend_commit=self.backend_commit,
            torch_version=self.torch_version,
        )
