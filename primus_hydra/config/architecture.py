"""What contradicts itself in a neutral model or its training, whatever the backend. Pure checks.

`layout_of` checks how a model is split; what one backend cannot build is said by that backend. Both would otherwise
repeat what is here.
"""

from __future__ import annotations

from collections.abc import Iterator

from primus_hydra.config.families import FAMILIES, LATENT, family_problems
from primus_hydra.config.schema import JobConfig
from primus_hydra.config.schema.model import EXPERTS_OF_FULL_WIDTH, ModelConfig
from primus_hydra.errors import Problem

__all__ = ["LATENT", "architecture_problems", "training_problems"]

_LATENT_KEYS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def architecture_problems(model: ModelConfig, *, seq_length: int | None = None) -> list[Problem]:
    """Return every reason why no backend can build `model`, or run it over `seq_length` tokens."""
    attention = _latent_problems if model.architecture in LATENT else _grouped_problems
    experts = _expert_problems(model) if model.is_moe and FAMILIES[model.architecture].experts != "no" else ()
    return [*_position_problems(model, seq_length), *family_problems(model), *attention(model), *experts]


def training_problems(job: JobConfig) -> list[Problem]:
    """Return what contradicts itself in the optimizer, its schedule and the profiler."""
    return [*_optimizer_problems(job), *_profiler_problems(job)]


def _position_problems(model: ModelConfig, seq_length: int | None) -> Iterator[Problem]:
    scaling = model.rope_scaling
    if scaling.rope_type in ("llama3", "yarn") and scaling.original_max_position_embeddings is None:
        yield Problem(
            key="model.rope_scaling.original_max_position_embeddings",
            what=f"{scaling.rope_type} scaling needs the context length before scaling",
        )
    if scaling.rope_type == "llama3" and scaling.high_freq_factor < scaling.low_freq_factor:
        yield Problem(key="model.rope_scaling.high_freq_factor", what="must not be less than low_freq_factor")
    if seq_length is not None and seq_length > model.max_position_embeddings:
        yield Problem(
            key="training.seq_length",
            what=f"{seq_length} tokens are more than the model's {model.max_position_embeddings} positions",
            hint="shorten it, or raise model.max_position_embeddings with a rope_scaling that reaches so far",
        )


def _grouped_problems(model: ModelConfig) -> Iterator[Problem]:
    if model.num_attention_heads % model.kv_heads:
        yield Problem(
            key="model.num_key_value_heads",
            what=f"{model.kv_heads} does not divide the {model.num_attention_heads} query heads",
        )
    if model.head_dim is None and model.hidden_size % model.num_attention_heads:
        yield Problem(
            key="model.num_attention_heads",
            what=f"{model.num_attention_heads} heads do not divide hidden_size {model.hidden_size}",
            hint="change one of them, or set model.head_dim",
        )
    elif model.head_width % 2:
        yield Problem(key="model.head_dim", what=f"rotary positions need an even head width, not {model.head_width}")


def _latent_problems(model: ModelConfig) -> Iterator[Problem]:
    for key in _LATENT_KEYS:
        if getattr(model, key) is None:
            yield Problem(key=f"model.{key}", what=f"{model.architecture} needs it for latent attention")
    if model.kv_heads != model.num_attention_heads:
        yield Problem(
            key="model.num_key_value_heads", what="latent attention has as many key heads as query heads", hint="null"
        )
    if model.head_dim not in (None, model.qk_rope_head_dim, _query_width(model)):
        yield Problem(
            key="model.head_dim",
            what="the head width of latent attention follows from qk_nope_head_dim and qk_rope_head_dim",
            hint="leave it null",
        )
    if (model.qk_rope_head_dim or 0) % 2:
        yield Problem(key="model.qk_rope_head_dim", what="rotary positions need an even width")


def _query_width(model: ModelConfig) -> int:
    return (model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0)


def _expert_problems(model: ModelConfig) -> Iterator[Problem]:
    experts = model.n_routed_experts or 0
    own_width = model.architecture not in EXPERTS_OF_FULL_WIDTH
    for key in ("moe_intermediate_size", "num_experts_per_tok") if own_width else ("num_experts_per_tok",):
        if getattr(model, key) is None:
            yield Problem(key=f"model.{key}", what="a model with routed experts needs it")
    groups, kept = model.n_group or 1, model.topk_group or model.n_group or 1
    if experts % groups:
        yield Problem(key="model.n_group", what=f"{groups} groups do not divide {experts} experts")
        return
    if kept > groups:
        yield Problem(key="model.topk_group", what=f"{kept} is more than the {groups} groups")
    if model.architecture == "deepseek_v3" and kept < groups and experts // groups < 2:
        yield Problem(key="model.n_group", what="DeepSeek-V3 ranks a group by its two best experts; one is too few")
    reachable = min(kept, groups) * (experts // groups)
    if (model.num_experts_per_tok or 0) > reachable:
        yield Problem(key="model.num_experts_per_tok", what=f"a token can reach only {reachable} experts")


def _optimizer_problems(job: JobConfig) -> Iterator[Problem]:
    schedule, steps = job.lr_schedule, job.training.steps
    if job.optimizer.name == "adam" and job.optimizer.weight_decay:
        yield Problem(
            key="optimizer.weight_decay",
            what="Adam with decoupled weight decay is AdamW",
            hint="set optimizer.name=adamw, or optimizer.weight_decay=0",
        )
    if schedule.decay_steps is not None and min(schedule.warmup_steps, steps) + schedule.decay_steps > steps:
        yield Problem(
            key="lr_schedule.decay_steps",
            what=f"{schedule.warmup_steps} steps of warm-up and {schedule.decay_steps} of decay exceed "
            f"training.steps={steps}",
            hint="shorten one of them, or set decay_steps=null for a decay right after the warm-up",
        )


def _profiler_problems(job: JobConfig) -> Iterator[Problem]:
    profiler = job.profiler
    if profiler.enable and profiler.every < profiler.warmup + profiler.active:
        what = f"a trace every {profiler.every} steps leaves no room for {profiler.warmup} + {profiler.active} steps"
        yield Problem(key="profiler.every", what=what, hint="raise it, or lower profiler.warmup and profiler.active")
    if profiler.memory_snapshot and job.platform.is_cpu:
        yield Problem(key="profiler.memory_snapshot", what="memory snapshots show a GPU's memory, and there is none")
