"""What adapters share whose backend is an installed package or a checkout that is looked for on this machine."""

from __future__ import annotations

import importlib
import sys
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.runtime.contracts import BackendAdapter, BaseTrainer

_STORED_BYTES = {"float32": 4, "bfloat16": 2}
_OF_STORAGE = ("optim", "dtype", "precision")
"""Parts of the names of native keys that may change what a checkpoint holds."""


class FoundBackend(Protocol):
    """A backend of this machine; `checkout` is None for the installed package."""

    @property
    def version(self) -> str:
        """Its version."""

    @property
    def checkout(self) -> Path | None:
        """The root of the checkout."""


class FoundAdapter(BackendAdapter):
    """An adapter that finds its backend by `_find`; `stages` maps a stage to module and class of its trainer."""

    stages: ClassVar[Mapping[str, tuple[str, str]]]

    @abstractmethod
    def _find(self) -> FoundBackend:
        """Find the backend.

        Raises UserError for a named path without a checkout, HostError if it is missing or not supported.
        """

    def setup_backend_path(self) -> Path | None:
        """Put a checkout in front of `sys.path`; return it, or None for the installed package; raises as `_find`."""
        checkout = self._find().checkout
        if checkout is not None and str(checkout) not in sys.path:
            sys.path.insert(0, str(checkout))
        return checkout

    def detect_backend_version(self) -> str:
        """Return the backend's version; raises as `_find`."""
        return self._find().version

    def load_trainer_class(self, stage: str) -> type[BaseTrainer]:
        """Return the trainer of a stage; raises UserError for a stage that is not there."""
        if stage not in self.stages:
            raise UserError(self._unknown_stage(stage))
        module, name = self.stages[stage]
        trainer: type[BaseTrainer] = getattr(importlib.import_module(module), name)
        return trainer

    def saved_bytes_per_parameter(self) -> int | None:
        """Return the bytes of a weight and of the two moments of Adam; None if native keys may store them otherwise."""
        job = self.job
        if job.module != "pretrain" or job.backend.trainer is not None or _stores_otherwise(job.backend.config):
            return None
        return 3 * _STORED_BYTES[self.job.precision.params]

    def _stage_problems(self) -> list[Problem]:
        return [] if self.job.module in self.stages else [self._unknown_stage(self.job.module)]

    def _version(self) -> tuple[str | None, list[Problem]]:
        """Return the version here; without one (a job for a cluster) the newest supported one is checked against."""
        try:
            return self._find().version, []
        except HostError:
            return None, []
        except UserError as error:
            return None, list(error.problems)

    def _unknown_stage(self, stage: str) -> Problem:
        hint = did_you_mean(stage, self.stages) or f"stages: {', '.join(self.stages)}"
        return Problem(key="module", what=f"{self.name} has no training stage {stage!r}", hint=hint)


def _stores_otherwise(config: Mapping[str, Any]) -> bool:
    return any(
        any(part in name for part in _OF_STORAGE) or (isinstance(value, Mapping) and _stores_otherwise(value))
        for name, value in config.items()
    )
