"""What is recorded while training: metrics, profiles, trackers."""

from __future__ import annotations

from dataclasses import dataclass

from primus_hydra.config.schema.key import key, node


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """Log lines and metrics.jsonl."""

    log_every: int = key(1, "Log every this many steps.", unit="steps", gt=0)
    objective: str = key(
        "auto",
        "What a sweep judges its points by: a name in metrics.jsonl; auto: validation_loss if measured, else loss.",
    )


@dataclass(frozen=True, kw_only=True)
class ProfilerConfig:
    """Traces of torch.profiler, and memory snapshots."""

    enable: bool = key(False, "Record traces.")
    every: int = key(10, "One trace every this many steps.", unit="steps", gt=0)
    warmup: int = key(3, "Steps of warm-up before a trace.", unit="steps", ge=0)
    active: int = key(1, "Steps in a trace.", unit="steps", gt=0)
    memory_snapshot: bool = key(False, "Record memory snapshots (GPU only).")


@dataclass(frozen=True, kw_only=True)
class TensorBoardConfig:
    """TensorBoard event files in the run directory."""

    enable: bool = key(False, "Write TensorBoard events.")


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """Weights & Biases."""

    enable: bool = key(False, "Log to Weights & Biases.")
    project: str = key("primus-hydra", "Project that the run belongs to.")
    entity: str | None = key(None, "User or team; null is the account's default.")
    offline: bool = key(False, "Write to the run directory only; sync later with `wandb sync`.")


@dataclass(frozen=True, kw_only=True)
class MlflowConfig:
    """MLflow."""

    enable: bool = key(False, "Log to MLflow.")
    experiment: str = key("primus-hydra", "Experiment that the run belongs to.")
    tracking_uri: str | None = key(None, "Server or folder; null is a folder in the run directory.")


@dataclass(frozen=True, kw_only=True)
class TrackerConfig:
    """Where metrics go beside metrics.jsonl; any number at once: tracker=[tensorboard,wandb]."""

    tensorboard: TensorBoardConfig = node(TensorBoardConfig, "TensorBoard event files.")
    wandb: WandbConfig = node(WandbConfig, "Weights & Biases.")
    mlflow: MlflowConfig = node(MlflowConfig, "MLflow.")
