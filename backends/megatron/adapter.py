"""The adapter of megatron-core: finds it, checks its version, and hands over to the translation.

Imports neither torch nor Megatron before `prepare_backend`; `problems` holds what can be said of a job before that.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

from primus_hydra.backends.megatron.limits import job_problems, layer_implementation
from primus_hydra.backends.megatron.native_keys import check_native
from primus_hydra.backends.megatron.quiet import without_gpu_notices
from primus_hydra.backends.megatron.versions import Found, find_megatron
from primus_hydra.config.architecture import LATENT
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import HostError, Problem
from primus_hydra.native.vocabulary import Vocabulary
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.runtime.found_adapter import FoundAdapter

_TRANSLATION = "primus_hydra.backends.megatron.native"
_ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
_DETERMINISTIC = {
    "NCCL_ALGO": "Ring",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
"""What upstream's own determinism.py sets."""


class MegatronAdapter(FoundAdapter):
    """Trains with our loop on megatron-core."""

    name = "megatron"
    stages: ClassVar = {"pretrain": ("primus_hydra.backends.megatron.trainer", "PretrainTrainer")}

    @classmethod
    def vocabulary(cls) -> Vocabulary:
        """Return the keys of people's own files, read only when somebody comes with one."""
        known: Vocabulary = importlib.import_module("primus_hydra.backends.megatron.argument_keys").core_vocabulary()
        return known

    def prepare_backend(self) -> None:
        """Import megatron.core, with the translation; raises HostError if another Megatron answers to that name."""
        with without_gpu_notices() if self.job.platform.is_cpu else nullcontext():
            core = importlib.import_module("megatron.core")
            _require_from(self._find().checkout, Path(str(core.__file__)))
            importlib.import_module(_TRANSLATION)

    def convert_config(self, context: RankContext) -> Any:
        """Return the `CoreConfig` of a rank; raises UserError with every problem."""
        return importlib.import_module(_TRANSLATION).core_config(self.job, context)

    def env_defaults(self) -> dict[str, str]:
        """Return what Megatron wants of its environment on this platform, and less noise from the profiler."""
        quiet = {"KINETO_LOG_LEVEL": "5"}
        if self.job.platform.is_cpu:
            return quiet
        order = _ONE_QUEUE if _wants_one_queue(self.job) else {}
        return {**quiet, **order, **(_DETERMINISTIC if self.job.training.deterministic else {})}

    def problems(self) -> list[Problem]:
        """Return everything that stands against this job and can be seen without torch."""
        version, problems = self._version()
        latent, indexed = self.job.model.architecture in LATENT, self.job.data.kind == "megatron"
        native = check_native(self.job.backend.config, version, mla=latent, has_dataset=indexed)
        return [
            *problems,
            *self._stage_problems(),
            *job_problems(self.job),
            *native,
        ]

    def missing_packages(self) -> list[Problem]:
        """Return Transformer Engine, if the layers are built from it and it is not installed."""
        if layer_implementation(self.job) == "local" or importlib.util.find_spec("transformer_engine") is not None:
            return []
        what = "Megatron's layers for GPUs need the Python package transformer_engine, which is not installed"
        hint = (
            'pip install --no-build-isolation "transformer-engine[pytorch]" (on AMD: ROCm/TransformerEngine), or '
            "backend.config.model.layer_implementation=local for Megatron's slower plain layers"
        )
        return [Problem(key="backend", what=what, hint=hint)]

    def _find(self) -> Found:
        return find_megatron(self.job.backend.path, os.environ)


def _wants_one_queue(job: JobConfig) -> bool:
    """Whether kernels must start in the order of their launch.

    Megatron overlaps the communication of tensor and context parallel ranks so, on GPUs before Blackwell (upstream's
    arguments.py asks for it there, and no longer from compute capability 10 on).
    """
    arch = job.platform.arch or ""
    blackwell = arch.startswith("sm_") and arch.removeprefix("sm_")[:-1].isdigit() and int(arch[3:-1]) >= 10
    return (job.parallel.tp > 1 or job.parallel.cp > 1) and not blackwell


def _require_from(checkout: Path | None, core: Path) -> None:
    if checkout is not None and checkout not in core.resolve().parents:
        raise HostError(
            Problem(
                key="backend.path",
                what=f"{checkout} is to be used, but megatron.core was already imported from {core.parent}",
                hint="start the command anew, or leave the checkout out to use the installed package",
            )
        )
