"""The adapter of `megatron.training`: finds it, checks its version and that nothing is mixed, and hands over.

Imports neither torch nor Megatron before `prepare_backend`; `problems` holds what can be said of a job before that.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from primus_hydra.backends.megatron.adapter import MegatronAdapter
from primus_hydra.backends.megatron.quiet import without_gpu_notices
from primus_hydra.backends.megatron.training.limits import core_job, in_our_words, job_problems
from primus_hydra.backends.megatron.training.native_keys import check_arguments
from primus_hydra.backends.megatron.training.versions import find_training, require_one_place
from primus_hydra.backends.megatron.versions import Found
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.runtime.contracts import BackendAdapter, BaseTrainer, RankContext

_STAGES = {"pretrain": ("primus_hydra.backends.megatron.training.trainer", "UpstreamTrainer")}
"""Training stage to module and class of its trainer."""
_TRANSLATION = "primus_hydra.backends.megatron.training.native"


class MegatronTrainingAdapter(BackendAdapter):
    """Trains with upstream's `megatron.training.pretrain`."""

    name = "megatron_training"

    def setup_backend_path(self) -> Path | None:
        """Put a checkout in front of `sys.path`; return it, or None for the installed package.

        Raises UserError for a named path without a checkout, HostError as `detect_backend_version` does.
        """
        checkout = self._find().checkout
        if checkout is not None and str(checkout) not in sys.path:
            sys.path.insert(0, str(checkout))
        return checkout

    def detect_backend_version(self) -> str:
        """Return Megatron's version; raises HostError if its training is missing, not supported or not its own."""
        return self._find().version

    def prepare_backend(self) -> None:
        """Import `megatron.training` with the translation; raises HostError if core and training are of two places."""
        with without_gpu_notices() if self.job.platform.is_cpu else nullcontext():
            parts = {name: importlib.import_module(name) for name in ("megatron.core", "megatron.training")}
            require_one_place({name: Path(str(module.__file__)).parent for name, module in parts.items()})
            importlib.import_module(_TRANSLATION)

    def convert_config(self, context: RankContext) -> Any:
        """Return the `UpstreamConfig` of a rank; raises UserError with every problem."""
        return importlib.import_module(_TRANSLATION).upstream_config(self.job, context)

    def load_trainer_class(self, stage: str) -> type[BaseTrainer]:
        """Return the trainer of a stage; raises UserError for a stage that is not there."""
        if stage not in _STAGES:
            raise UserError(_unknown_stage(stage))
        module, name = _STAGES[stage]
        trainer: type[BaseTrainer] = getattr(importlib.import_module(module), name)
        return trainer

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
        stage = [] if self.job.module in _STAGES else [_unknown_stage(self.job.module)]
        return [*problems, *stage, *job_problems(self.job), *check_arguments(self.job.backend.config, version)]

    def missing_packages(self) -> list[Problem]:
        """Return Transformer Engine, if the layers are built from it and it is not installed."""
        return [in_our_words(problem) for problem in self._core().missing_packages()]

    def _core(self) -> MegatronAdapter:
        return MegatronAdapter(core_job(self.job))

    def _find(self) -> Found:
        return find_training(self.job.backend.path, os.environ)

    def _version(self) -> tuple[str | None, list[Problem]]:
        """Return the version here; without one (a job for a cluster) the newest supported one is checked against."""
        try:
            return self._find().version, []
        except HostError:
            return None, []
        except UserError as error:
            return None, list(error.problems)


def _unknown_stage(stage: str) -> Problem:
    hint = did_you_mean(stage, _STAGES) or f"stages: {', '.join(_STAGES)}"
    return Problem(key="module", what=f"megatron_training has no training stage {stage!r}", hint=hint)
