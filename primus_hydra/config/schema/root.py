"""The whole composed tree. Every node a user can override is a field here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from primus_hydra.config.schema.data import DataConfig, TokenizerConfig
from primus_hydra.config.schema.environment import DeterminismConfig, NetworkConfig
from primus_hydra.config.schema.hooks import HooksConfig
from primus_hydra.config.schema.key import key, node
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.config.schema.observe import MetricsConfig, ProfilerConfig, TrackerConfig
from primus_hydra.config.schema.parallel import ParallelConfig
from primus_hydra.config.schema.platform import PlatformConfig
from primus_hydra.config.schema.run import BackendConfig, LaunchConfig, PatchesConfig, RunConfig
from primus_hydra.config.schema.training import (
    CheckpointConfig,
    CompileConfig,
    LrScheduleConfig,
    OptimizerConfig,
    PrecisionConfig,
    RecomputeConfig,
    TrainingConfig,
    ValidationConfig,
)


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """A job, composed and resolved."""

    module: str = key("pretrain", "Training stage.")
    model: ModelConfig = node(ModelConfig, "Architecture of the model.")
    training: TrainingConfig = node(TrainingConfig, "Length and shape of the training.")
    optimizer: OptimizerConfig = node(OptimizerConfig, "The update rule.")
    lr_schedule: LrScheduleConfig = node(LrScheduleConfig, "Learning rate over steps.")
    precision: PrecisionConfig = node(PrecisionConfig, "Number formats.")
    recompute: RecomputeConfig = node(RecomputeConfig, "Activation checkpointing.")
    compile: CompileConfig = node(CompileConfig, "torch.compile.")
    checkpoint: CheckpointConfig = node(CheckpointConfig, "Saving.")
    validation: ValidationConfig = node(ValidationConfig, "Validation loss.")
    init_from: str | None = key(
        None, "Weights that start the run: a checkpoint folder, or hf:DIR for Hugging Face safetensors; null: random."
    )
    data: DataConfig = node(DataConfig, "The token source.")
    tokenizer: TokenizerConfig = node(TokenizerConfig, "How text becomes tokens.")
    parallel: ParallelConfig = node(ParallelConfig, "Split over ranks.")
    platform: PlatformConfig = node(PlatformConfig, "Facts of the hardware.")
    backend: BackendConfig = node(BackendConfig, "Who trains.")
    metrics: MetricsConfig = node(MetricsConfig, "Log lines.")
    profiler: ProfilerConfig = node(ProfilerConfig, "Traces.")
    tracker: TrackerConfig = node(TrackerConfig, "Experiment trackers.")
    patches: PatchesConfig = node(PatchesConfig, "Registered changes to a backend.")
    env: dict[str, str] = key(
        {}, "Environment variables for the ranks; they win over the platform's and the backend's."
    )
    network: NetworkConfig = node(NetworkConfig, "Talk between nodes.")
    determinism: DeterminismConfig = node(DeterminismConfig, "Results that repeat.")
    launch: LaunchConfig = node(LaunchConfig, "Starting the ranks.")
    hooks: HooksConfig = node(HooksConfig, "What runs around the ranks.")
    run: RunConfig = node(RunConfig, "Identity and place of the run.")
    resume: Literal["auto", "never", "must"] = key("auto", "Continue from the newest complete checkpoint of the run.")
    task: dict[str, Any] = key({}, "What to do: the task's class and its own options.")
