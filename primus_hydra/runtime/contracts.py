"""The contracts between the runtime and a backend: what an adapter and a trainer must offer.

A backend package implements both; the runtime knows it only through these classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from primus_hydra.config.layout import Layout
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import Problem
from primus_hydra.native.vocabulary import Vocabulary
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.pulse import NoPulse, PulseWriter


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """What a trainer reports of one logged step; only the rank that owns the loss reports.

    `loss` is the mean over the global batch (nats per token), `tokens_per_s` counts all ranks,
    `mfu` is a part of 1 (0.41 for 41 %).
    """

    step: int
    loss: float
    lr: float
    grad_norm: float | None = None
    tokens_per_s: float | None = None
    tflops_per_rank: float | None = None
    mfu: float | None = None
    memory_gib: float | None = None
    step_time_s: float | None = None
    validation_loss: float | None = None
    extra: Mapping[str, float] | None = None


class MetricsSink(Protocol):
    """Receives what the trainer reports: metrics.jsonl and the trackers stand behind it."""

    def log(self, metrics: StepMetrics) -> None:
        """Record one step."""


class StopSignal(Protocol):
    """Tells the trainer whether the ranks should stop after this step."""

    def agreed(self, step: int) -> bool:
        """Whether all ranks stop after finishing `step`; collective, called once per step by every rank."""


class CheckpointLedger(Protocol):
    """Marks checkpoints complete; called on every rank after a save has reached the disk."""

    def completed(self, step: int) -> None:
        """Record that the checkpoint at `step` is whole (rank 0 writes the manifest)."""


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """Everything a rank knows beside the job's configuration.

    A trainer says by `with context.pulse.section(...)` that it saves, loads or validates; asking `stop` after a step is
    a beat by itself.
    """

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    attempt: int
    restart: int
    paths: RunPaths
    layout: Layout
    data: PreparedData
    resume_from: int | None
    backend_version: str
    metrics: MetricsSink
    stop: StopSignal
    ledger: CheckpointLedger
    pulse: PulseWriter = field(default_factory=NoPulse)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the one writer of shared files."""
        return self.rank == 0


class BaseTrainer(ABC):
    """One training stage on one rank: `setup -> init -> train -> cleanup(on_error)`."""

    def __init__(self, native: Any, job: JobConfig, context: RankContext) -> None:
        self.native = native
        self.job = job
        self.context = context

    @abstractmethod
    def setup(self) -> None:
        """Start what the backend needs before it builds (its loggers, its caches)."""

    @abstractmethod
    def init(self) -> None:
        """Build process groups, model, optimizer, data; load the checkpoint."""

    @abstractmethod
    def train(self) -> None:
        """Train until the last step or an agreed stop, whose step is saved before the return."""

    @abstractmethod
    def cleanup(self, on_error: bool = False) -> None:
        """Release everything; called exactly once, also after a failure."""

    @property
    @abstractmethod
    def step(self) -> int:
        """Steps finished so far."""


class BackendAdapter(ABC):
    """Translates our configuration into the backend's own objects."""

    name: str

    def __init__(self, job: JobConfig) -> None:
        self.job = job

    @classmethod
    def vocabulary(cls) -> Vocabulary | None:
        """Return the backend's own keys as its users write them, for `task=migrate`; None: nothing comes from there."""
        return None

    @abstractmethod
    def setup_backend_path(self) -> Path | None:
        """Put the backend on `sys.path` if it is a checkout; return where it was found, None if installed."""

    @abstractmethod
    def detect_backend_version(self) -> str:
        """Version of the backend, without importing it where that is slow.

        Raises HostError when it is missing, or when its version or torch's is not supported.
        """

    @abstractmethod
    def prepare_backend(self) -> None:
        """Import the backend; runs after the patches of phase `before_import`."""

    @abstractmethod
    def convert_config(self, context: RankContext) -> Any:
        """Return the backend's own configuration object; raises UserError with all problems."""

    @abstractmethod
    def load_trainer_class(self, stage: str) -> type[BaseTrainer]:
        """Return the trainer class of a stage; raises UserError for a stage the backend lacks."""

    def missing_packages(self) -> list[Problem]:
        """Return one problem for each package that this job needs beside the backend and that is not installed."""
        return []

    def env_defaults(self) -> dict[str, str]:
        """Environment variables that the backend wants unless platform or user say otherwise."""
        return {}

    def saved_bytes_per_parameter(self) -> int | None:
        """Return the bytes that each parameter takes in a checkpoint at least; None where that is not known."""
        return None

    def problems(self) -> list[Problem]:
        """Return everything that stands against the job and can be said without importing the backend or torch."""
        return []
