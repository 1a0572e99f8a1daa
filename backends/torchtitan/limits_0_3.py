"""What torchtitan 0.3 cannot do of a neutral job, found without torch; the model's own limits are beside the models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from primus_hydra.backends.torchtitan.models.limits import model_problems
from primus_hydra.config.architecture import training_problems
from primus_hydra.config.layout import Layout, layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.data.tokenizer import tokenizer_vocab_size
from primus_hydra.errors import Problem, UserError
from primus_hydra.run.init_from import init_from_problems
from primus_hydra.weights.check import hf_problems

SINGLE_STAGE: Final = ("1F1B", "GPipe")
"""Pipeline schedules with one model chunk per rank."""
MULTI_STAGE: Final = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
"""Pipeline schedules with several model chunks per rank."""
_AC: Final = "torchtitan.distributed.activation_checkpoint"
_RECOMPUTE: Final = {"selective": "SelectiveAC", "full": "FullAC", "memory_budget": "MemoryBudgetAC"}
_TWO_CHUNKS: Final = ("ZBVZeroBubble", "DualPipeV")
_ROUNDS: Final = ("Interleaved1F1B", "InterleavedZeroBubble")
_ALL_STAGES_FED: Final = ("1F1B", "DualPipeV")
SPLIT_BACKWARD: Final = ("InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
"""Pipeline schedules that compute the gradients of inputs and of weights apart."""
PLAIN_LOSS: Final = "torchtitan.components.loss.CrossEntropyLoss.Config"
CHUNKED_LOSS: Final = "torchtitan.components.loss.ChunkedLossWrapper.Config"
FP8_RECIPES: Final = ("rowwise", "rowwise_with_gw_hp")
"""torchtitan's fp8 recipes."""
COMPONENTS: Final = ("model", "loss")
"""What torchtitan can compile."""


def job_problems(job: JobConfig) -> list[Problem]:
    """Return everything that stands against training `job` with torchtitan 0.3, native keys apart."""
    layout, _ = layout_of(job)
    return [
        *model_problems(job.model, job.parallel, vocab_size=_vocab_size(job), seq_length=job.training.seq_length),
        *_parallel_problems(job),
        *(_pipeline_problems(job, layout) if layout and job.parallel.pp > 1 else ()),
        *training_problems(job),
        *_memory_problems(job),
        *_precision_problems(job),
        *_data_problems(job),
        *_checkpoint_problems(job),
    ]


def _vocab_size(job: JobConfig) -> int | None:
    """Rows of the embedding; None where the tokenizer cannot be read, which the data's own check reports."""
    if job.model.vocab_size is not None:
        return job.model.vocab_size
    try:
        return tokenizer_vocab_size(job)
    except UserError:
        return None


def canonical_schedule(name: str) -> str | None:
    """Return a pipeline schedule's name as torch writes it, or None if there is none of this name."""
    return next((known for known in SINGLE_STAGE + MULTI_STAGE if known.lower() == name.lower()), None)


def splits_backward(job: JobConfig) -> bool:
    """Whether the pipeline computes the gradients of inputs and of weights apart."""
    return job.parallel.pp > 1 and canonical_schedule(job.parallel.pipeline_schedule) in SPLIT_BACKWARD


def placed_by_job(job: JobConfig) -> dict[str, str | None]:
    """Return which configuration class sits where, as far as it depends on the job; None where there is none."""
    recompute = f"{_AC}.{_RECOMPUTE[job.recompute.mode]}.Config" if job.recompute.mode in _RECOMPUTE else None
    loss: dict[str, str | None] = {"loss": PLAIN_LOSS, "loss.loss_fn": None} if splits_backward(job) else {}
    return {"activation_checkpoint": recompute, **loss}


def layers_per_stage(job: JobConfig) -> int | None:
    """Return torchtitan's layers per stage, which fixes the number of stages; None where its own rule gives it.

    torchtitan makes ceil((layers + embedding + output) / layers_per_stage) stages, the last two weighing one layer each
    unless `backend.config.parallelism` says otherwise. Raises ValueError if no number of layers gives pp x vpp stages.
    """
    if job.parallel.vpp == (1 if canonical_schedule(job.parallel.pipeline_schedule) in SINGLE_STAGE else 2):
        return None
    native = _native_parallelism(job)
    given = [native.get(f"pipeline_parallel_{end}_stage_less_layers") for end in ("first", "last")]
    ends = [end if isinstance(end, int) else 1 for end in given]
    weight = job.model.num_hidden_layers + sum(ends)
    stages = job.parallel.pp * job.parallel.vpp
    layers = math.ceil(weight / stages)
    if math.ceil(weight / layers) != stages:
        raise ValueError(
            f"{job.model.num_hidden_layers} layers, with {' and '.join(map(str, ends))} for embedding and output, "
            f"cannot be cut into {stages} stages of equal size"
        )
    return layers


def _parallel_problems(job: JobConfig) -> Iterator[Problem]:
    if job.parallel.sharding == "optimizer":
        yield Problem(
            key="parallel.sharding",
            what="torchtitan shards nothing or everything, not the optimizer state alone",
            hint="set parallel.sharding=full or none",
        )
    if job.parallel.etp > 1 and not job.model.is_moe:
        yield Problem(key="parallel.etp", what=f"{job.model.name} has no experts to split", hint="set parallel.etp=1")
    if job.parallel.vpp > 1 and job.parallel.pp == 1:
        yield Problem(key="parallel.vpp", what="model chunks need a pipeline", hint="set parallel.pp, or vpp=1")


def _pipeline_problems(job: JobConfig, layout: Layout) -> Iterator[Problem]:
    name, key = job.parallel.pipeline_schedule, "parallel.pipeline_schedule"
    schedule, names = canonical_schedule(name), SINGLE_STAGE + MULTI_STAGE
    if schedule is None:
        hint = did_you_mean(name, names) or f"schedules: {', '.join(names)}"
        yield Problem(key=key, what=f"there is no schedule {name}", hint=hint)
        return
    chunks = job.parallel.vpp
    if schedule in SINGLE_STAGE and chunks != 1:
        hint = f"set parallel.vpp=1, or a schedule for several: {', '.join(MULTI_STAGE)}"
        yield Problem(key="parallel.vpp", what=f"{schedule} runs one model chunk per rank, not {chunks}", hint=hint)
    elif schedule in MULTI_STAGE and (chunks == 1 or (schedule in _TWO_CHUNKS and chunks != 2)):
        wanted = "two model chunks" if schedule in _TWO_CHUNKS else "two or more model chunks"
        yield Problem(key="parallel.vpp", what=f"{schedule} needs {wanted} per rank, not {chunks}", hint="set vpp=2")
    elif "module_fqns_per_model_part" not in _native_parallelism(job):
        try:
            layers_per_stage(job)
        except ValueError as error:
            yield Problem(key="parallel.vpp", what=str(error), hint="change parallel.vpp or parallel.pp")
    yield from _schedule_problems(job, schedule)
    yield from _microbatch_problems(schedule, job.parallel.pp, job.parallel.pp * chunks, layout.microbatches)


def _schedule_problems(job: JobConfig, schedule: str) -> Iterator[Problem]:
    if schedule in _TWO_CHUNKS and job.validation.enable:
        what = f"{schedule} cannot run a forward without a backward in torch 2.14"
        yield Problem(key="validation.enable", what=what, hint="set it to false, or choose another schedule")
    loss = job.backend.config.get("loss", {})
    if splits_backward(job) and isinstance(loss, dict) and loss.get("_target_") == CHUNKED_LOSS:
        yield Problem(
            key="backend.config.loss._target_",
            what=f"{schedule} loses part of the gradients of a loss that runs its own backward in pieces",
            hint=f"leave it out: {PLAIN_LOSS} is taken",
        )


def _native_parallelism(job: JobConfig) -> dict[str, Any]:
    group = job.backend.config.get("parallelism", {})
    return group if isinstance(group, dict) else {}


def _microbatch_problems(schedule: str, pp: int, stages: int, microbatches: int) -> Iterator[Problem]:
    key, now = "training.global_batch_size", f"{schedule} has {microbatches} microbatches per step"
    rounds = max(1, microbatches // pp)
    if schedule in _ALL_STAGES_FED and microbatches < stages:
        hint = "raise it, or lower training.micro_batch_size"
        yield Problem(key=key, what=f"{now} and needs at least one per stage ({stages})", hint=hint)
    elif schedule in _ROUNDS and microbatches % rounds:
        hint = f"make them a multiple of parallel.pp={pp}"
        yield Problem(key=key, what=f"{now}, which do not fill {rounds} equal rounds of {pp} ranks", hint=hint)


def _memory_problems(job: JobConfig) -> Iterator[Problem]:
    compiled = job.compile.enable and "model" in job.compile.components
    if job.recompute.mode == "memory_budget" and not compiled:
        yield Problem(
            key="recompute.mode",
            what="memory_budget is carried out by the compiler",
            hint='set compile.enable=true with "model" in compile.components, or another recompute.mode',
        )
    for name in job.compile.components:
        if name not in COMPONENTS:
            hint = did_you_mean(name, COMPONENTS) or f"components: {', '.join(COMPONENTS)}"
            yield Problem(key="compile.components", what=f"torchtitan cannot compile {name!r}", hint=hint)


def _data_problems(job: JobConfig) -> Iterator[Problem]:
    if job.data.kind == "megatron":
        hint = "set backend=megatron, or data=text with the text that they were made from"
        yield Problem(key="data.kind", what="torchtitan reads no indexed data sets of Megatron", hint=hint)


def _precision_problems(job: JobConfig) -> Iterator[Problem]:
    if job.precision.compute == "float16":
        what = "torchtitan scales no loss, without which float16 loses small gradients"
        yield Problem(key="precision.compute", what=what, hint="use bfloat16, or backend=megatron")
    fp8 = job.precision.fp8
    if fp8 is not None and fp8 not in FP8_RECIPES:
        hint = f"choose one of {', '.join(FP8_RECIPES)}"
        yield Problem(key="precision.fp8", what=f"torchtitan has no {fp8} recipe", hint=hint)
    if fp8 is not None and job.precision.fp8_emulate and job.compile.enable and "model" in job.compile.components:
        hint = "set compile.enable=false"
        yield Problem(key="precision.fp8_emulate", what="emulated fp8 cannot be compiled", hint=hint)


def _checkpoint_problems(job: JobConfig) -> Iterator[Problem]:
    checkpoint = job.checkpoint
    if checkpoint.async_mode == "async_pinned" and job.platform.is_cpu:
        hint = "set checkpoint.async_mode=async"
        yield Problem(key="checkpoint.async_mode", what="async_pinned copies from a GPU, and there is none", hint=hint)
    if checkpoint.export_hf and not checkpoint.enable:
        hint = "set checkpoint.enable=true"
        yield Problem(key="checkpoint.export_hf", what="the export is written by the checkpoint manager", hint=hint)
    yield from hf_problems(job, _vocab_size(job))
    yield from init_from_problems(job, _vocab_size(job))
