"""From the neutral configuration to torchtitan 0.3's own: `translate` returns a `Trainer.Config` that can be built.

Every neutral key is either set here or refused in `limits_0_3`. Native keys of the user are laid over the result; they
cannot touch what a neutral key owns (`owned_0_3`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from pathlib import Path
from typing import Any

from torchtitan.components.loss import BaseLoss, ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig
from torchtitan.components.tokenizer import BaseTokenizer, HuggingFaceTokenizer
from torchtitan.config import CommConfig, CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.config.override import OverrideConfig
from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC
from torchtitan.tools.profiler import Profiler

from primus_hydra.backends.torchtitan.checkpointer import LedgerCheckpointManager
from primus_hydra.backends.torchtitan.dataloader import SampleDataLoader, open_ordered
from primus_hydra.backends.torchtitan.limits_0_3 import (
    canonical_schedule,
    job_problems,
    layers_per_stage,
    splits_backward,
)
from primus_hydra.backends.torchtitan.loop import StoppableTrainer
from primus_hydra.backends.torchtitan.metrics import ReportingMetricsProcessor
from primus_hydra.backends.torchtitan.models.spec import model_spec
from primus_hydra.backends.torchtitan.native_keys import KEEP, TARGETS, without_owned
from primus_hydra.backends.torchtitan.tokenizer import NoTokenizer
from primus_hydra.backends.torchtitan.validator import HeldOutValidator, measures_at
from primus_hydra.config.init_from import hf_folder
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem, UserError, raise_all
from primus_hydra.native.overlay import overlay
from primus_hydra.run.init_from import require_checkpoint
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.runtime.save_room import SaveRoom
from primus_hydra.weights.check import open_hf

_LOSS_CHUNKS = 8
"""torchtitan's own number of pieces in which logits are computed; fewer where the sequence cannot be cut so."""
_OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam"}
_ASYNC_MODES = {"disabled": "disabled", "async": "async", "async_pinned": "async_with_pinned_mem"}


def translate(job: JobConfig, context: RankContext) -> StoppableTrainer.Config:
    """Return torchtitan's configuration of one rank; raises UserError with every problem that can be seen."""
    free, problems = without_owned(job.backend.config)
    problems = job_problems(job) + problems
    raise_all(problems)
    config, problems = overlay(_base(job, context), free, targets=TARGETS, keep=KEEP)
    if config is None:
        raise UserError(*problems)
    # What the user names comes first and what he leaves goes to the neutral optimizer.
    config.optimizer.param_groups.append(_param_group(job))
    return config


def _base(job: JobConfig, context: RankContext) -> StoppableTrainer.Config:
    vocab_size = job.model.vocab_size or context.data.vocab_size
    return StoppableTrainer.Config(
        stop_agreed=context.stop.agreed,
        model_spec=model_spec(
            job.model,
            vocab_size=vocab_size,
            seq_length=job.training.seq_length,
            global_batch_size=job.training.global_batch_size,
            parallel=job.parallel,
            precision=job.precision,
            compiled=job.compile.enable and "model" in job.compile.components,
        ),
        hf_assets_path=context.data.tokenizer_dir or "",
        dump_folder=str(context.paths.root),
        profiler=_profiler(job, context),
        metrics=_metrics(job, context),
        tokenizer=_tokenizer(context, vocab_size),
        dataloader=SampleDataLoader.Config(open_split=functools.partial(open_ordered, context.data, job, "train")),
        optimizer=OptimizersContainer.Config(),
        lr_scheduler=_lr_scheduler(job),
        training=_training(job, context),
        parallelism=_parallelism(job, context),
        checkpoint=_checkpoint(job, context),
        activation_checkpoint=_activation_checkpoint(job),
        compile=CompileConfig(
            enable=job.compile.enable, components=list(job.compile.components), backend=job.compile.backend
        ),
        comm=_comm(job, context),
        validator=_validator(job, context),
        debug=_debug(job),
        override=OverrideConfig(),
        loss=_loss(job, vocab_size),
    )


def _param_group(job: JobConfig) -> ParamGroupConfig:
    settings = job.optimizer
    return ParamGroupConfig(
        pattern=".*",
        optimizer_name=_OPTIMIZERS[settings.name],
        optimizer_kwargs={
            "lr": settings.lr,
            "betas": (settings.beta1, settings.beta2),
            "eps": settings.eps,
            "weight_decay": settings.weight_decay,
        },
    )


def _lr_scheduler(job: JobConfig) -> LRSchedulersContainer.Config:
    schedule, steps = job.lr_schedule, job.training.steps
    constant = schedule.decay == "constant"
    ratio = None if schedule.decay_steps is None else schedule.decay_steps / steps
    return LRSchedulersContainer.Config(
        warmup_steps=min(schedule.warmup_steps, steps),
        # Fixed, so that a run that is stopped and resumed follows one curve.
        total_steps=steps,
        decay_ratio=0.0 if constant else ratio,
        decay_type="cosine" if constant else schedule.decay,
        min_lr_factor=schedule.min_lr_ratio,
    )


def _training(job: JobConfig, context: RankContext) -> TrainingConfig:
    layout, training = context.layout, job.training
    pipeline = layout.pp > 1
    return TrainingConfig(
        # Under a pipeline one call takes all microbatches of the step, without one the step accumulates them.
        local_batch_size=layout.global_batch_size // layout.dp if pipeline else layout.micro_batch_size,
        global_batch_size=layout.global_batch_size,
        seq_len=training.seq_length,
        max_norm=training.max_grad_norm,
        steps=training.steps,
        disable_cuda_graphs=job.platform.is_cpu or pipeline or layout.ep > 1,
        dtype=job.precision.params,
        mixed_precision_param=job.precision.compute,
        mixed_precision_reduce=job.precision.reduce,
    )


def _parallelism(job: JobConfig, context: RankContext) -> ParallelismConfig:
    layout, parallel = context.layout, job.parallel
    replicate_all = parallel.sharding == "none"
    return ParallelismConfig(
        data_parallel_replicate_degree=layout.dp if replicate_all else layout.dp_replicate,
        data_parallel_shard_degree=1 if replicate_all else layout.dp_shard,
        fsdp_reshard_after_forward=parallel.reshard_after_forward,
        tensor_parallel_degree=layout.tp,
        enable_sequence_parallel=parallel.sequence_parallel,
        pipeline_parallel_degree=layout.pp,
        pipeline_parallel_layers_per_stage=layers_per_stage(job) if layout.pp > 1 else None,
        pipeline_parallel_schedule=canonical_schedule(parallel.pipeline_schedule) or parallel.pipeline_schedule,
        pipeline_parallel_microbatch_size=layout.micro_batch_size,
        context_parallel_degree=layout.cp,
        expert_parallel_degree=layout.ep,
    )


def _checkpoint(job: JobConfig, context: RankContext) -> LedgerCheckpointManager.Config:
    settings, weights = job.checkpoint, _weights(job, context)
    loads = context.resume_from is not None or weights is not None
    return LedgerCheckpointManager.Config(
        completed=context.ledger.completed,
        room=lambda gather: SaveRoom(context, settings, gather),
        keep=settings.keep,
        keep_every=settings.keep_every,
        # torchtitan keeps no helper thread for 0 and refuses 1, which is safe here: see LedgerCheckpointManager.
        keep_latest_k=max(2, settings.keep) if settings.keep else 0,
        enable=settings.enable or loads,
        load_only=not settings.enable,
        folder=_below_root(context, context.paths.checkpoints),
        interval=settings.every,
        async_mode=_ASYNC_MODES[settings.async_mode],
        load_step=-1 if context.resume_from is None else context.resume_from,
        initial_load_path=weights,
        initial_load_model_only=weights is not None,
        initial_load_in_hf=weights is not None and hf_folder(job.init_from) is not None,
        # torchtitan's default keeps only weights at the end, from which no run can be resumed.
        last_save_model_only=False,
        export_dtype=settings.export_dtype,
    )


def _weights(job: JobConfig, context: RankContext) -> str | None:
    """Return the folder of the first weights; a run that goes on needs it no more, and it may be gone."""
    if job.init_from is None or context.resume_from is not None:
        return None
    published = hf_folder(job.init_from)
    if published is not None:
        return str(open_hf(published.resolve(), job, job.model.vocab_size or context.data.vocab_size).path)
    return str(require_checkpoint(job, job.model.vocab_size or context.data.vocab_size))


def _activation_checkpoint(job: JobConfig) -> Any:
    match job.recompute.mode:
        case "selective":
            return SelectiveAC.Config()
        case "full":
            return FullAC.Config()
        case "memory_budget":
            return MemoryBudgetAC.Config(memory_budget=job.recompute.memory_budget)
    return None


def _loss(job: JobConfig, vocab_size: int) -> BaseLoss.Config:
    plain = CrossEntropyLoss.Config(global_vocab_size=vocab_size)
    # The loss in chunks runs its own backward in the forward; a schedule that splits the backward never sees it whole.
    if splits_backward(job):
        return plain
    local_length = job.training.seq_length // job.parallel.cp
    return ChunkedLossWrapper.Config(num_chunks=math.gcd(_LOSS_CHUNKS, local_length), loss_fn=plain)


def _metrics(job: JobConfig, context: RankContext) -> ReportingMetricsProcessor.Config:
    peak = job.platform.peak_tflops.get(job.precision.compute)
    return ReportingMetricsProcessor.Config(
        report=context.metrics.log,
        also_log=functools.partial(_logged_beside, job),
        peak_flops=peak * 1e12 if peak else None,
        log_freq=job.metrics.log_every,
        disable_color_printing=True,
    )


def _logged_beside(job: JobConfig, step: int) -> bool:
    """Whether a step is logged out of turn: the last one, and those whose validation loss is reported."""
    validated = job.validation.enable and measures_at(step, job.validation.every, job.training.steps)
    return step == job.training.steps or validated


def _tokenizer(context: RankContext, vocab_size: int) -> BaseTokenizer.Config:
    return HuggingFaceTokenizer.Config() if context.data.tokenizer_dir else NoTokenizer.Config(vocab_size=vocab_size)


def _validator(job: JobConfig, context: RankContext) -> HeldOutValidator.Config:
    settings, layout = job.validation, context.layout
    open_split = functools.partial(open_ordered, context.data, job, "validation")
    if settings.enable:
        _require_validation_batch(len(open_split().samples), job, context)
    return HeldOutValidator.Config(
        enable=settings.enable,
        freq=settings.every,
        last_step=job.training.steps,
        # One measurement takes `steps` global batches, so the layout does not change what is measured.
        steps=settings.steps * (1 if layout.pp > 1 else layout.microbatches),
        dataloader=SampleDataLoader.Config(open_split=open_split, infinite=False),
    )


def _require_validation_batch(samples: int, job: JobConfig, context: RankContext) -> None:
    layout = context.layout
    needed = layout.global_batch_size if layout.pp > 1 else layout.micro_batch_size * layout.dp
    if samples < needed:
        raise UserError(
            Problem(
                key="data.validation_fraction",
                what=f"{samples} validation samples are fewer than the {needed} that all ranks take at once",
                hint="raise it, or set validation.enable=false",
            )
        )


def _profiler(job: JobConfig, context: RankContext) -> Profiler.Config:
    settings = job.profiler
    folder = _below_root(context, context.paths.profiles)
    return Profiler.Config(
        enable_profiling=settings.enable,
        save_traces_folder=f"{folder}/traces",
        profile_freq=settings.every,
        profiler_warmup=settings.warmup,
        profiler_active=settings.active,
        enable_memory_snapshot=settings.memory_snapshot,
        save_memory_snapshot_folder=f"{folder}/memory",
    )


def _comm(job: JobConfig, context: RankContext) -> CommConfig:
    default = CommConfig(save_traces_folder=_below_root(context, context.paths.collectives))
    # The recorder of collectives belongs to GPU libraries; on a CPU it would leave an empty folder.
    return dataclasses.replace(default, trace_buf_size=0) if job.platform.is_cpu else default


def _debug(job: JobConfig) -> DebugConfig:
    return DebugConfig(
        seed=job.training.seed, deterministic=job.training.deterministic, enable_structured_logging=False
    )


def _below_root(context: RankContext, folder: Path) -> str:
    """Return a path as torchtitan wants it: relative to the folder that it dumps into."""
    return os.path.relpath(folder, context.paths.root)
