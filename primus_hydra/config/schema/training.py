"""What the optimiser sees: steps, batches, update rule, schedule, precision and memory savings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.schema.key import key


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Length and shape of the training."""

    steps: int = key(1000, "Optimizer steps in all.", gt=0)
    global_batch_size: int = key(128, "Samples per optimizer step, over all ranks.", unit="samples", gt=0)
    micro_batch_size: int | Literal["auto"] = key(
        1, "Samples per forward of one data-parallel rank; auto takes its whole share at once.", unit="samples", gt=0
    )
    seq_length: int = key(4096, "Tokens per sample.", unit="tokens", gt=0)
    seed: int = key(42, "Seed of initialisation, data order and dropout.", ge=0)
    max_grad_norm: float = key(1.0, "Gradients are clipped to this global norm.", gt=0)
    deterministic: bool = key(False, "Use deterministic kernels (slower).")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The update rule."""

    name: Literal["adamw", "adam"] = key("adamw", "Update rule.")
    lr: float = key(3e-4, "Peak learning rate.", gt=0)
    beta1: float = key(0.9, "Decay of the first moment.", ge=0, lt=1)
    beta2: float = key(0.95, "Decay of the second moment.", ge=0, lt=1)
    eps: float = key(1e-8, "Added to the root of the second moment.", gt=0)
    weight_decay: float = key(0.1, "Decoupled weight decay.", ge=0)


@dataclass(frozen=True, kw_only=True)
class LrScheduleConfig:
    """Learning rate over steps: linear warm-up, a plateau, then decay."""

    warmup_steps: int = key(100, "Steps of linear warm-up from zero.", unit="steps", ge=0)
    decay: Literal["cosine", "linear", "sqrt", "constant"] = key("cosine", "Shape of the decay after the warm-up.")
    decay_steps: int | None = key(None, "Length of the decay at the end; null means all after the warm-up.", ge=0)
    min_lr_ratio: float = key(0.1, "Final learning rate as a part of the peak.", ge=0, le=1)


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig:
    """Number formats."""

    params: Literal["float32", "bfloat16"] = key("float32", "Format of the stored parameters and optimizer state.")
    compute: Literal["bfloat16", "float16", "float32"] = key("bfloat16", "Format of forward and backward.")
    reduce: Literal["float32"] = key("float32", "Format of gradient reductions.")
    fp8: Literal["tensorwise", "rowwise", "rowwise_with_gw_hp"] | None = key(
        None, "Recipe of fp8 matrix products in the linear layers; null means none."
    )
    fp8_exclude: list[str] = key(["lm_head"], "Modules whose name holds one of these stay out of fp8.")
    fp8_emulate: bool = key(False, "Emulate fp8 where the hardware lacks it (tests only, slow).")


@dataclass(frozen=True, kw_only=True)
class RecomputeConfig:
    """Activation checkpointing: memory against compute."""

    mode: Literal["none", "selective", "full", "memory_budget"] = key("none", "What is recomputed in the backward.")
    memory_budget: float = key(0.5, "memory_budget mode: part of the activations kept.", ge=0, le=1)


@dataclass(frozen=True, kw_only=True)
class CompileConfig:
    """torch.compile of the model and the loss."""

    enable: bool = key(False, "Compile with torch.compile.")
    components: list[str] = key(["model", "loss"], "What is compiled: model, loss.")
    backend: str = key("inductor", "torch.compile backend.")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When the training state is saved, and how much is kept."""

    enable: bool = key(True, "Save checkpoints.")
    every: int = key(500, "Save every this many steps; the last step is always saved.", unit="steps", gt=0)
    keep: int = key(3, "Newest checkpoints kept; 0 keeps all.", ge=0)
    keep_every: int | None = key(
        None, "Checkpoints at multiples of this step are kept for good; null keeps none so.", unit="steps", gt=0
    )
    async_mode: Literal["disabled", "async", "async_pinned"] = key("disabled", "Write while training goes on.")
    leave_free_gib: float | None = key(
        0.0,
        "Disk space that a save must leave free; null saves without looking whether there is room.",
        unit="GiB",
        ge=0,
    )
    export_hf: bool = key(False, "Also write the final weights as Hugging Face safetensors.")
    export_dtype: Literal["float32", "bfloat16", "float16"] = key("float32", "Number format of the export.")


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Loss on documents held out of training."""

    enable: bool = key(False, "Measure the validation loss while training.")
    every: int = key(100, "Measure every this many steps.", unit="steps", gt=0)
    steps: int = key(10, "Batches per measurement.", gt=0)
