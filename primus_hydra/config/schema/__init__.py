"""The typed schema of the configuration: dataclasses with a default, bounds, unit and one line of doc per key."""

from primus_hydra.config.schema.container import ContainerConfig
from primus_hydra.config.schema.data import DataConfig, TokenizerConfig
from primus_hydra.config.schema.environment import DeterminismConfig, NetworkConfig
from primus_hydra.config.schema.hooks import HooksConfig
from primus_hydra.config.schema.key import REQUIRED, KeyInfo, info_of, key, node
from primus_hydra.config.schema.limits import LimitsConfig
from primus_hydra.config.schema.model import ModelConfig, RopeScaling
from primus_hydra.config.schema.observe import MetricsConfig, ProfilerConfig, TrackerConfig
from primus_hydra.config.schema.parallel import ParallelConfig
from primus_hydra.config.schema.platform import PlatformConfig
from primus_hydra.config.schema.root import JobConfig
from primus_hydra.config.schema.run import BackendConfig, LaunchConfig, PatchesConfig, RunConfig, TimeoutsConfig
from primus_hydra.config.schema.slurm import SlurmConfig
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

__all__ = [
    "REQUIRED",
    "BackendConfig",
    "CheckpointConfig",
    "CompileConfig",
    "ContainerConfig",
    "DataConfig",
    "DeterminismConfig",
    "HooksConfig",
    "JobConfig",
    "KeyInfo",
    "LaunchConfig",
    "LimitsConfig",
    "LrScheduleConfig",
    "MetricsConfig",
    "ModelConfig",
    "NetworkConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "PatchesConfig",
    "PlatformConfig",
    "PrecisionConfig",
    "ProfilerConfig",
    "RecomputeConfig",
    "RopeScaling",
    "RunConfig",
    "SlurmConfig",
    "TimeoutsConfig",
    "TokenizerConfig",
    "TrackerConfig",
    "TrainingConfig",
    "ValidationConfig",
    "info_of",
    "key",
    "node",
]
