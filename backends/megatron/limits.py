"""What our loop on megatron-core cannot do of a neutral job, found without torch; models have limits of their own.

Also says what follows from a job before anything is built: which layers, and whether the optimizer is sharded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from primus_hydra.backends.megatron.models.limits import model_problems
from primus_hydra.backends.megatron.models.split import group_problems, split_problems
from primus_hydra.backends.megatron.rampup import rampup_problems
from primus_hydra.config.architecture import training_problems
from primus_hydra.config.layout import Layout, layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.data.tokenizer import tokenizer_vocab_size
from primus_hydra.errors import Problem, UserError
from primus_hydra.run.init_from import init_from_problems
from primus_hydra.weights.check import export_problems, hf_problems

FP8_RECIPES: Final = ("tensorwise",)
"""Transformer Engine's fp8 recipes that a neutral word stands for."""
SINGLE_CHUNK: Final = "1F1B"
"""Megatron's pipeline schedule with one model chunk per rank."""
SEVERAL_CHUNKS: Final = "Interleaved1F1B"
"""Megatron's pipeline schedule with several model chunks per rank."""
_FREE_SPLIT: Final = (
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "pipeline_model_parallel_layout",
)
"""Native keys that cut layers into stages of different sizes; Megatron checks those itself."""
_ENGINE_ONLY: Final = (
    "apply_rope_fusion",
    "fp4",
    "moe_grouped_gemm",
    "moe_permute_fusion",
    "moe_router_fusion",
    "tp_comm_overlap",
    "use_te_activation_func",
    "use_te_rng_tracker",
)
"""Switches of Megatron's TransformerConfig that need Transformer Engine."""


_GROUPS: Final = ["cp", "dp", "ep", "pp", "tp"]
"""Kinds of parallel groups, whose order over the ranks may be chosen."""
_FIXED: Final = (
    ("transformer.calculate_per_token_loss", True, "the loss of our loop is a mean over tokens, not over microbatches"),
    ("ddp.average_in_collective", False, "gradients are sums here, divided once by the number of tokens"),
    ("transformer.mtp_num_layers", None, "our loop does not build the layers that predict further tokens"),
)
"""Native keys whose value our loop is built on, that value, and why."""


def layer_implementation(job: JobConfig) -> Literal["local", "transformer_engine"]:
    """Return what the layers are made of: Transformer Engine's on GPUs, unless native keys say otherwise."""
    chosen = _native(job, "model").get("layer_implementation")
    if chosen in ("local", "transformer_engine"):
        return "local" if chosen == "local" else "transformer_engine"
    return "local" if job.platform.is_cpu else "transformer_engine"


def shards_optimizer(job: JobConfig, layout: Layout) -> bool:
    """Whether data-parallel ranks share the optimizer state (Megatron's distributed optimizer) or copy it."""
    return job.parallel.sharding != "none" and layout.dp > 1


def packs_documents(job: JobConfig) -> bool:
    """Whether documents are kept apart as packed sequences, which only Transformer Engine's attention knows."""
    return job.data.document_mask and layer_implementation(job) == "transformer_engine"


def job_problems(job: JobConfig) -> list[Problem]:
    """Return everything that stands against training `job` with our loop on megatron-core, native keys apart."""
    layout, _ = layout_of(job)
    local = layer_implementation(job) == "local"
    rows = _embedding_rows(job)
    seq_length = job.training.seq_length
    return [
        *model_problems(job.model, seq_length=seq_length),
        *split_problems(job.model, job.parallel, vocab_size=rows, seq_length=seq_length, local=local),
        *(group_problems(job.model, job.parallel, layout) if layout else ()),
        *_sharding_problems(job, layout),
        *_context_problems(job, local=local),
        *_pipeline_problems(job, layout),
        *training_problems(job),
        *_memory_problems(job),
        *_precision_problems(job, local=local),
        *_native_problems(job, local=local),
        *_range_problems(job),
        *_seed_problems(job),
        *(_rampup_problems(job, layout) if layout else ()),
        *(_balance_problems(job, layout) if layout else ()),
        *_checkpoint_problems(job, rows),
    ]


def _seed_problems(job: JobConfig) -> Iterator[Problem]:
    if _native(job, "checkpoint").get("create_seed") is True and not job.checkpoint.enable:
        key = "backend.config.checkpoint.create_seed"
        yield Problem(key=key, what="nothing is saved with checkpoint.enable=false", hint="set checkpoint.enable=true")


def _rampup_problems(job: JobConfig, layout: Layout) -> list[Problem]:
    rampup = _native(job, "batch").get("rampup")
    if not isinstance(rampup, list) or not all(isinstance(size, int) for size in rampup):
        return []  # null, or what the check of native keys refuses
    rounds = layout.pp if job.parallel.vpp > 1 else 1
    return rampup_problems(rampup, layout.global_batch_size, layout.micro_batch_size * layout.dp * rounds)


def _range_problems(job: JobConfig) -> Iterator[Problem]:
    """Check the values of our own sections, of which the data file knows only the types."""
    every = _native(job, "loop").get("garbage_collect_every")
    if isinstance(every, int) and every < 1:
        what = f"{every} is not a number of steps"
        yield Problem(key="backend.config.loop.garbage_collect_every", what=what, hint="null leaves it to Python")
    minutes = _native(job, "parallel").get("distributed_timeout_minutes")
    if isinstance(minutes, int) and minutes < 1:
        key = "backend.config.parallel.distributed_timeout_minutes"
        yield Problem(key=key, what=f"{minutes} leaves no time for a collective")
    order = _native(job, "parallel").get("order")
    if isinstance(order, str) and sorted(order.split("-")) != _GROUPS:
        key = "backend.config.parallel.order"
        yield Problem(key=key, what=f"{order!r} does not name each of {', '.join(_GROUPS)} once, with - between them")
    ranks = _native(job, "loop").get("profile_ranks")
    if isinstance(ranks, str) and not all(part.strip().isdigit() for part in ranks.split(",")):
        key = "backend.config.loop.profile_ranks"
        yield Problem(key=key, what=f"{ranks!r} is no list of ranks", hint='numbers with commas, such as "0,8"')


def _balance_problems(job: JobConfig, layout: Layout) -> Iterator[Problem]:
    if job.model.is_moe and job.model.aux_loss_alpha and packs_documents(job) and layout.micro_batch_size > 1:
        yield Problem(
            key="training.micro_batch_size",
            what="the balance loss is counted per sequence, and packed documents make one sequence of a microbatch",
            hint="use 1, or data.document_mask=false",
        )


def _embedding_rows(job: JobConfig) -> int | None:
    """Rows of the embedding; None where the tokenizer cannot be read, which the data's own check reports."""
    if job.model.vocab_size is not None:
        return job.model.vocab_size
    try:
        return tokenizer_vocab_size(job)
    except UserError:
        return None


def _native(job: JobConfig, section: str) -> dict[str, Any]:
    group = job.backend.config.get(section, {})
    return group if isinstance(group, dict) else {}


def _sharding_problems(job: JobConfig, layout: Layout | None) -> Iterator[Problem]:
    parallel, key = job.parallel, "parallel.sharding"
    if parallel.sharding == "full":
        what = "megatron-core's optimizer shards its own state; parameters and gradients stay whole on every rank"
        yield Problem(key=key, what=what, hint="set it to optimizer, or backend=torchtitan")
    elif parallel.sharding != "none" and layout and layout.dp_replicate > 1 and layout.dp_shard > 1:
        what = "one optimizer is shared by all data-parallel ranks here, not by groups of them that copy each other"
        hint = f"set parallel.dp_replicate=1 (then dp_shard={layout.dp}), or {key}=none"
        yield Problem(key="parallel.dp_replicate", what=what, hint=hint)
    if parallel.reshard_after_forward != "default":
        what = "there is nothing to free after the forward: parameters are not sharded"
        yield Problem(key="parallel.reshard_after_forward", what=what, hint="leave it at default")


def _context_problems(job: JobConfig, *, local: bool) -> Iterator[Problem]:
    if job.parallel.cp == 1:
        return
    if local:
        what = "Megatron splits a sequence over ranks only in Transformer Engine's attention, which runs on GPUs"
        yield Problem(key="parallel.cp", what=what, hint="set it to 1")
    elif job.data.document_mask:
        what = "documents are packed sequences here, which context parallel ranks cannot cut at equal places"
        yield Problem(key="data.document_mask", what=what, hint="set it to false, or parallel.cp=1")


def _pipeline_problems(job: JobConfig, layout: Layout | None) -> Iterator[Problem]:
    parallel, chunks = job.parallel, job.parallel.vpp
    if parallel.pp == 1:
        if chunks > 1:
            yield Problem(key="parallel.vpp", what="model chunks need a pipeline", hint="set parallel.pp, or vpp=1")
        return
    yield from _schedule_problems(parallel.pipeline_schedule, chunks)
    if not any(_native(job, "transformer").get(key) for key in _FREE_SPLIT):
        yield from _stage_problems(job.model.num_hidden_layers, parallel.pp, chunks)
    if chunks > 1 and layout and layout.microbatches % parallel.pp:
        samples = layout.micro_batch_size * layout.dp * parallel.pp
        near = max(1, layout.global_batch_size // samples) * samples
        what = f"{layout.microbatches} microbatches per step do not go round {parallel.pp} ranks with several chunks"
        yield Problem(key="training.global_batch_size", what=what, hint=f"use {near}, a multiple of {samples}")


def _schedule_problems(name: str, chunks: int) -> Iterator[Problem]:
    key, wanted = "parallel.pipeline_schedule", SINGLE_CHUNK if chunks == 1 else SEVERAL_CHUNKS
    known = next((known for known in (SINGLE_CHUNK, SEVERAL_CHUNKS) if known.lower() == name.lower()), None)
    if known is None:
        hint = did_you_mean(name, (SINGLE_CHUNK, SEVERAL_CHUNKS)) or f"use {wanted}"
        yield Problem(key=key, what=f"Megatron has no schedule {name}", hint=hint)
    elif known != wanted:
        words = "one model chunk" if chunks == 1 else f"{chunks} model chunks"
        hint = f"set {key}={wanted}, or parallel.vpp={2 if chunks == 1 else 1}"
        yield Problem(key=key, what=f"{known} does not run {words} per rank (parallel.vpp={chunks})", hint=hint)


def _stage_problems(layers: int, pp: int, chunks: int) -> Iterator[Problem]:
    stages = pp * chunks
    if layers % stages:
        fit = [size for size in range(1, layers + 1) if layers % size == 0 and size % pp == 0]
        near = sorted(sorted(fit, key=lambda size: abs(size - stages))[:3])
        stated = f"pp*vpp can be {' or '.join(map(str, near))} with pp={pp}; " if near else ""
        yield Problem(
            key="parallel.pp" if chunks == 1 else "parallel.vpp",
            what=f"{layers} layers cannot be cut into {stages} stages of equal size",
            hint=f"{stated}stages of different sizes: backend.config.transformer.num_layers_in_last_pipeline_stage=N",
        )


def _memory_problems(job: JobConfig) -> Iterator[Problem]:
    if job.recompute.mode == "memory_budget":
        what = "memory_budget is carried out by torch.compile, which does not see Megatron's layers"
        yield Problem(key="recompute.mode", what=what, hint="use selective or full")
    if job.compile.enable:
        what = "Megatron's layers are not compiled as a whole; its fused kernels are chosen one by one"
        yield Problem(key="compile.enable", what=what, hint="set it to false; see backend.config.transformer.*_fusion")


def _precision_problems(job: JobConfig, *, local: bool) -> Iterator[Problem]:
    precision = job.precision
    if precision.params != "float32":
        what = "Megatron's optimizer keeps parameters and moments in float32, whatever the model computes in"
        yield Problem(key="precision.params", what=what, hint="set it to float32")
    if precision.fp8 is None:
        return
    if local:
        what = "fp8 is computed by Transformer Engine's layers, and these are Megatron's plain ones"
        yield Problem(key="precision.fp8", what=what, hint="set it to null, or train on GPUs with Transformer Engine")
    if precision.fp8 not in FP8_RECIPES:
        what, hint = f"Megatron has no {precision.fp8} recipe", f"use {' or '.join(FP8_RECIPES)}"
        yield Problem(key="precision.fp8", what=what, hint=hint)
    if precision.fp8_exclude != ["lm_head"]:
        what = "Megatron computes every linear layer but the output projection in fp8"
        yield Problem(key="precision.fp8_exclude", what=what, hint="set it to [lm_head]")
    if precision.fp8_emulate:
        what = "Transformer Engine does not emulate fp8"
        yield Problem(key="precision.fp8_emulate", what=what, hint="set it to false")


def _native_problems(job: JobConfig, *, local: bool) -> Iterator[Problem]:
    """Say which native keys contradict what our loop is built on; their names and types are checked elsewhere."""
    transformer, schedule = _native(job, "transformer"), _native(job, "schedule")
    for key in _ENGINE_ONLY:
        if local and transformer.get(key):
            what = "needs Transformer Engine's layers, and these are Megatron's plain ones"
            yield Problem(key=f"backend.config.transformer.{key}", what=what, hint="leave it out")
    for path, fixed, reason in _FIXED:
        section, key = path.split(".")
        value = _native(job, section).get(key, fixed)
        if value != fixed:
            yield Problem(key=f"backend.config.{path}", what=reason, hint="leave it out")
    if "end_weight_decay" in schedule and schedule.get("weight_decay_incr_style", "constant") == "constant":
        what = "another weight decay at the end needs a way to get there"
        hint = "set backend.config.schedule.weight_decay_incr_style=linear or cosine"
        yield Problem(key="backend.config.schedule.end_weight_decay", what=what, hint=hint)


def _checkpoint_problems(job: JobConfig, rows: int | None) -> Iterator[Problem]:
    if job.checkpoint.async_mode == "async_pinned":
        what = "Megatron has one way to write while training goes on"
        yield Problem(key="checkpoint.async_mode", what=what, hint="set it to async")
    yield from export_problems(job)
    yield from hf_problems(job, rows)
    yield from init_from_problems(job, rows)
