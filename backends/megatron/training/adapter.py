"""The adapter of `megatron.training`: finds it, checks its version and that nothing is mixed, and hands over.

Imports neither torch nor Megatron before `prepare_backend`; `problems` holds what can be said of a job before that.
"""

from __future__ import annotations

import importlib
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

from primus_hydra.backends.megatron.adapter import MegatronAdapter
from primus_hydra.backends.megatron.quiet import without_gpu_notices
from primus_hydra.backends.megatron.training.limits import core_job, in_our_words, job_problems
from primus_hydra.backends.megatron.training.native_keys import check_arguments
from primus_hydra.backends.megatron.training.versions import find_training, require_one_place
from primus_hydra.backends.megatron.versions import Found
from primus_hydra.errors import Problem
from primus_hydra.native.vocabulary import Vocabulary
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.runtime.found_adapter import FoundAdapter

_TRANSLATION = "primus_hydra.backends.megatron.training.native"


class MegatronTrainingAdapter(FoundAdapter):
    """Trains with upstream's `megatron.training.pretrain`."""

    name = "megatron_training"
    stages: ClassVar = {"pretrain": ("primus_hydra.backends.megatron.training.trainer", "UpstreamTrainer")}

    @classmethod
    def vocabulary(cls) -> Vocabulary:
        """Return the keys of people's own files, read only when somebody comes with one."""
        known: Vocabulary = importlib.import_module(
            "primus_hydra.backends.megatron.argument_keys"
        ).training_vocabulary()
        return known

    def prepare_backend(self) -> None:
        """Import `megatron.training` with the translation; raises HostError if core and training are of two places."""
        with without_gpu_notices() if self.job.platform.is_cpu else nullcontext():
            parts = {name: importlib.import_module(name) for name in ("megatron.core", "megatron.training")}
            require_one_place({name: Path(str(module.__file__)).parent for name, module in parts.items()})
            importlib.import_module(_TRANSLATION)

    def convert_config(self, context: RankContext) -> Any:
        """Return the `UpstreamConfig` of a rank; raises UserError with every problem."""
        return importlib.import_module(_TRANSLATION).upstream_config(self.job, context)

    def env_defaults(self) -> dict[str, str]:
        """Return what Megatron wants of its environment.

        Upstream's arguments ask for one queue of the device with tensor or context parallel ranks, on a CPU too.
        """
        split = self.job.parallel.tp > 1 or self.job.parallel.cp > 1
        queue = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if split and self.job.platform.is_cpu else {}
        return {**self._core().env_defaults(), **queue}

    def problems(self) -> list[Problem]:
        """Return everything that stands against this job and can be seen without torch."""
        version, problems = self._version()
        return [
            *problems,
            *self._stage_problems(),
            *job_problems(self.job),
            *check_arguments(self.job.backend.config, version),
        ]

    def missing_packages(self) -> list[Problem]:
        """Return Transformer Engine, if the layers are built from it and it is not installed."""
        return [in_our_words(problem) for problem in self._core().missing_packages()]

    def _core(self) -> MegatronAdapter:
        return MegatronAdapter(core_job(self.job))

    def _find(self) -> Found:
        return find_training(self.job.backend.path, os.environ)
