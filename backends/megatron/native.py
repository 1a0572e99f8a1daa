"""From the neutral configuration to megatron-core's own: `core_config` returns what the core trainer is built from.

Every neutral key is set here, refused in `limits`, or read from the job by the part of the trainer that carries it out
(validation, checkpoints, profiler). Native keys of the user are laid over the neutral values before anything is built;
they cannot touch what a neutral key owns (`owned`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_standard_config_overrides
from megatron.core.optimizer.optimizer_config import ParamKey

from primus_hydra.backends.megatron.indexed import dataset_kwargs
from primus_hydra.backends.megatron.limits import (
    job_problems,
    layer_implementation,
    shards_optimizer,
)
from primus_hydra.backends.megatron.models.transformer import gpt_fields, model_fields
from primus_hydra.backends.megatron.overlay import build_core
from primus_hydra.backends.megatron.quiet import without_notices_of_defaults
from primus_hydra.backends.megatron.sections import (
    Batch,
    Checkpoint,
    CoreConfig,
    GptModel,
    Loop,
    ParallelState,
    Schedule,
)
from primus_hydra.config.init_from import hf_folder
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import UserError, raise_all
from primus_hydra.run.init_from import require_checkpoint
from primus_hydra.runtime.contracts import RankContext

Section = tuple[type[Any], dict[str, Any]]
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def core_config(job: JobConfig, context: RankContext) -> CoreConfig:
    """Return the configuration of one rank; raises UserError with every problem that can be seen.

    Needs no process group.
    """
    raise_all(job_problems(job))
    _require_weights(job, context)
    sections = neutral_sections(job, context)
    with without_notices_of_defaults():
        config, problems = build_core(sections, job.backend.config, stop_agreed=context.stop.agreed)
    if config is None:
        raise UserError(*problems)
    return config


def neutral_sections(job: JobConfig, context: RankContext) -> dict[str, Section]:
    """Return class and arguments of each section, as the neutral keys have them; `dataset` only for Megatron's."""
    sections: dict[str, Section] = {
        "transformer": _transformer(job, context),
        "optimizer": (OptimizerConfig, _optimizer(job, context)),
        "ddp": (DistributedDataParallelConfig, _ddp(job, context)),
        "model": (GptModel, _model(job, context)),
        "schedule": (Schedule, _schedule(job)),
        "batch": (Batch, {}),
        "parallel": (ParallelState, {}),
        "checkpoint": (Checkpoint, {}),
        "loop": (Loop, {}),
    }
    if job.data.kind == "megatron":
        sections["dataset"] = (GPTDatasetConfig, dataset_kwargs(job, context))
    return sections


def optimizer_overrides(config: OptimizerConfig) -> Mapping[ParamKey, Any]:
    """Return Megatron's settings of single parameters: its own, without the one that spares some from weight decay.

    Left to itself Megatron decays neither norms nor biases; the neutral key decays every parameter, in every backend.
    """
    standard = get_standard_config_overrides(config)
    return {key: override for key, override in standard.items() if "wd_mult" not in override}


def _transformer(job: JobConfig, context: RankContext) -> Section:
    engine = layer_implementation(job) == "transformer_engine"
    kind, fields = model_fields(job.model, job.parallel, engine=engine)
    return kind, {
        **fields,
        **_sizes(job, context),
        **_precision(job),
        **_recompute(job),
        **_kernels(job, engine=engine),
        "deterministic_mode": job.training.deterministic,
        # The loss is a mean over all tokens that count, in every layout and with every loss mask.
        "calculate_per_token_loss": True,
    }


def _sizes(job: JobConfig, context: RankContext) -> dict[str, Any]:
    layout, parallel = context.layout, job.parallel
    return {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "virtual_pipeline_model_parallel_size": parallel.vpp if parallel.vpp > 1 else None,
        "context_parallel_size": layout.cp,
        "sequence_parallel": parallel.sequence_parallel and layout.tp > 1,
    }


def _precision(job: JobConfig) -> dict[str, Any]:
    precision = job.precision
    dtype = _DTYPES[precision.compute]
    return {
        "bf16": precision.compute == "bfloat16",
        "fp16": precision.compute == "float16",
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        **({"fp8": "hybrid", "fp8_recipe": precision.fp8} if precision.fp8 else {}),
    }


def _recompute(job: JobConfig) -> dict[str, Any]:
    match job.recompute.mode:
        case "selective":
            return {"recompute_granularity": "selective"}
        case "full":
            return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return {}


def _kernels(job: JobConfig, *, engine: bool) -> dict[str, Any]:
    """Return what depends on the hardware: no fused kernel is there on a CPU."""
    gpu, chunks = not job.platform.is_cpu, job.parallel.vpp > 1
    plain_rope = job.model.kv_lora_rank is None and job.model.rope_scaling.rope_type != "yarn"
    return {
        "transformer_impl": "transformer_engine" if engine else "local",
        # On a CPU all weights are drawn whole and then cut, so the tensor parallel degree does not change them.
        "use_cpu_initialization": not gpu,
        "bias_activation_fusion": gpu,
        "bias_dropout_fusion": gpu,
        "apply_rope_fusion": engine and plain_rope,
        # Sends and receives of a pipeline are hidden behind the other chunks, where there are any.
        "overlap_p2p_comm": gpu and chunks,
        "batch_p2p_comm": gpu and not chunks,
        "deallocate_pipeline_outputs": gpu and job.parallel.pp > 1,
    }


def _optimizer(job: JobConfig, context: RankContext) -> dict[str, Any]:
    settings, precision = job.optimizer, job.precision
    sharded = shards_optimizer(job, context.layout)
    return {
        "optimizer": "adam",
        "decoupled_weight_decay": settings.name == "adamw",
        "lr": settings.lr,
        "min_lr": settings.lr * job.lr_schedule.min_lr_ratio,
        "adam_beta1": settings.beta1,
        "adam_beta2": settings.beta2,
        "adam_eps": settings.eps,
        "weight_decay": settings.weight_decay,
        "clip_grad": job.training.max_grad_norm,
        "bf16": precision.compute == "bfloat16",
        "fp16": precision.compute == "float16",
        "params_dtype": _DTYPES[precision.compute],
        "use_distributed_optimizer": sharded,
        "overlap_param_gather": sharded and not job.platform.is_cpu,
        # The loss is a sum over tokens until its gradients are divided: Megatron's 2**32 would skip the first 16 steps.
        **({"initial_loss_scale": 2.0**16} if precision.compute == "float16" else {}),
        **({"fp8_recipe": precision.fp8} if precision.fp8 else {}),
    }


def _ddp(job: JobConfig, context: RankContext) -> dict[str, Any]:
    gpu, sharded = not job.platform.is_cpu, shards_optimizer(job, context.layout)
    return {
        "grad_reduce_in_fp32": job.precision.reduce == "float32",
        "use_distributed_optimizer": sharded,
        "overlap_grad_reduce": gpu and context.layout.dp > 1,
        "overlap_param_gather": gpu and sharded,
    }


def _model(job: JobConfig, context: RankContext) -> dict[str, Any]:
    vocab_size = job.model.vocab_size or context.data.vocab_size
    return {**gpt_fields(job.model, vocab_size=vocab_size), "layer_implementation": layer_implementation(job)}


def _schedule(job: JobConfig) -> dict[str, Any]:
    schedule, steps, decay = job.lr_schedule, job.training.steps, job.optimizer.weight_decay
    return {
        "warmup_steps": min(schedule.warmup_steps, steps),
        "decay": schedule.decay,
        "decay_steps": schedule.decay_steps,
        "min_lr_ratio": schedule.min_lr_ratio,
        "steps": steps,
        "start_weight_decay": decay,
        "end_weight_decay": decay,
    }


def _require_weights(job: JobConfig, context: RankContext) -> None:
    """Raise UserError where the checkpoint to start from is not here: this is the machine that reads it.

    A run that goes on needs it no more, and it may be gone.
    """
    if job.init_from is not None and hf_folder(job.init_from) is None and context.resume_from is None:
        require_checkpoint(job, job.model.vocab_size or context.data.vocab_size)
