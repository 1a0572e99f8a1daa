"""The adapter of torchtitan: finds it, checks its version, and hands over to the translation for that version.

Imports neither torch nor torchtitan before `prepare_backend`; `problems` holds what can be said of a job before that.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from primus_hydra.backends.torchtitan.limits_0_3 import job_problems, placed_by_job
from primus_hydra.backends.torchtitan.native_keys import check_native
from primus_hydra.backends.torchtitan.versions import Found, find_torchtitan
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.runtime.contracts import BackendAdapter, BaseTrainer, RankContext

_STAGES = {"pretrain": ("primus_hydra.backends.torchtitan.trainer", "PretrainTrainer")}
"""Training stage to module and class of its trainer."""


class TorchTitanAdapter(BackendAdapter):
    """Trains with torchtitan."""

    name = "torchtitan"

    def setup_backend_path(self) -> Path | None:
        """Put a checkout in front of `sys.path`; return it, or None for the installed package.

        Raises UserError for a named path without a checkout, HostError as `detect_backend_version` does.
        """
        checkout = self._find().checkout
        if checkout is not None and str(checkout) not in sys.path:
            sys.path.insert(0, str(checkout))
        return checkout

    def detect_backend_version(self) -> str:
        """Return torchtitan's version; raises HostError if it or torch is missing or not supported."""
        return self._find().version

    def prepare_backend(self) -> None:
        """Import torchtitan, with the translation for its version."""
        importlib.import_module(self._find().release.translation)

    def convert_config(self, context: RankContext) -> Any:
        """Return torchtitan's `Trainer.Config`; raises UserError with every problem."""
        return importlib.import_module(self._find().release.translation).translate(self.job, context)

    def load_trainer_class(self, stage: str) -> type[BaseTrainer]:
        """Return the trainer of a stage; raises UserError for a stage that is not there."""
        if stage not in _STAGES:
            raise UserError(_unknown_stage(stage))
        module, name = _STAGES[stage]
        trainer: type[BaseTrainer] = getattr(importlib.import_module(module), name)
        return trainer

    def env_defaults(self) -> dict[str, str]:
        """Return what torchtitan's own start script sets, and less noise from the profiler."""
        quiet = {"KINETO_LOG_LEVEL": "5"}
        if self.job.platform.vendor == "nvidia":
            return {**quiet, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
        return quiet

    def problems(self) -> list[Problem]:
        """Return everything that stands against this job and can be seen without torch."""
        version, problems = self._version()
        stage = [] if self.job.module in _STAGES else [_unknown_stage(self.job.module)]
        native = check_native(self.job.backend.config, version, placed=placed_by_job(self.job))
        return [*problems, *stage, *job_problems(self.job), *native]

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
    return Problem(key="module", what=f"torchtitan has no training stage {stage!r}", hint=hint)
