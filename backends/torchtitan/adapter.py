"""The adapter of torchtitan: finds it, checks its version, and hands over to the translation for that version.

Imports neither torch nor torchtitan before `prepare_backend`; `problems` holds what can be said of a job before that.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any, ClassVar

from primus_hydra.backends.torchtitan.limits_0_3 import job_problems, placed_by_job
from primus_hydra.backends.torchtitan.native_keys import check_native
from primus_hydra.backends.torchtitan.versions import Found, find_torchtitan
from primus_hydra.errors import Problem
from primus_hydra.native.vocabulary import Vocabulary
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.runtime.found_adapter import FoundAdapter


class TorchTitanAdapter(FoundAdapter):
    """Trains with torchtitan."""

    name = "torchtitan"
    stages: ClassVar = {"pretrain": ("primus_hydra.backends.torchtitan.trainer", "PretrainTrainer")}

    @classmethod
    def vocabulary(cls) -> Vocabulary:
        """Return the keys of people's own files, read only when somebody comes with one."""
        known: Vocabulary = importlib.import_module("primus_hydra.backends.torchtitan.known_keys").vocabulary()
        return known

    def prepare_backend(self) -> None:
        """Import torchtitan, with the translation for its version."""
        importlib.import_module(self._find().release.translation)

    def convert_config(self, context: RankContext) -> Any:
        """Return torchtitan's `Trainer.Config`; raises UserError with every problem."""
        return importlib.import_module(self._find().release.translation).translate(self.job, context)

    def env_defaults(self) -> dict[str, str]:
        """Return what torchtitan's own start script sets, and less noise from the profiler."""
        quiet = {"KINETO_LOG_LEVEL": "5"}
        if self.job.platform.vendor == "nvidia":
            return {**quiet, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
        return quiet

    def problems(self) -> list[Problem]:
        """Return everything that stands against this job and can be seen without torch."""
        version, problems = self._version()
        native = check_native(self.job.backend.config, version, placed=placed_by_job(self.job))
        return [*problems, *self._stage_problems(), *job_problems(self.job), *native]

    def missing_packages(self) -> list[Problem]:
        """Return the package of torchtitan's fp8 conversion, if the job asks for fp8 and it is not installed."""
        if self.job.precision.fp8 is None or importlib.util.find_spec("torchao") is not None:
            return []
        what = "fp8 needs the Python package torchao, which is not installed"
        return [
            Problem(key="precision.fp8", what=what, hint="pip install 'primus-hydra[float8]', or precision.fp8=null")
        ]

    def _find(self) -> Found:
        return find_torchtitan(self.job.backend.path, os.environ)
