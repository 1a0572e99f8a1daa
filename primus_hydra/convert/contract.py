"""What a backend offers so that its checkpoints can be converted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import torch

from primus_hydra.config.schema import JobConfig
from primus_hydra.convert.layout import NativeLayout


class NativeFormat(ABC):
    """Checkpoints of one backend, for the model of one job on a processor.

    Used once per process, after the backend was imported with its patches.
    """

    backend: ClassVar[str]
    embedding: ClassVar[str]
    """The tensor whose rows are the vocabulary."""

    def __init__(self, job: JobConfig) -> None:
        self.job = job

    @abstractmethod
    def layout(self, vocab_size: int, saved: Collection[str] | None = None) -> NativeLayout:
        """Return the layout of the job's model with `vocab_size` rows.

        `saved` are the keys of a checkpoint that is to be read; where a backend has several ways to keep the same
        model, the one that fits is chosen. Needs no memory for weights. Raises UserError with everything that the
        backend cannot build.
        """

    @abstractmethod
    def finish(self, folder: Path) -> None:
        """Write what the backend's loader wants beside the tensors."""

    @abstractmethod
    def logits(self, folder: Path, tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
        """Return the float32 logits of the backend's own model, loaded by its own loader, for (batch, length) ids."""
