"""What torchtitan 0.3.0 cannot build of a neutral model, found without torch so that the launcher can refuse first.

`model_problems` is pure. Every key of `ModelConfig` either reaches torchtitan through the builders beside this module
or is named here with the reason; the two must be changed together.
"""

from __future__ import annotations

from collections.abc import Iterator

from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.config.schema.parallel import ParallelConfig
from primus_hydra.errors import Problem

DEEPSEEK = ("deepseek_v2", "deepseek_v3")

# torch's context-parallel block mask covers whole blocks of 128 queries on every rank.
_CP_BLOCK = 128
_LATENT_KEYS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_EXPERT_KEYS = ("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group")


def model_problems(
    model: ModelConfig,
    parallel: ParallelConfig,
    *,
    vocab_size: int | None = None,
    seq_length: int | None = None,
) -> list[Problem]:
    """Return every reason why torchtitan 0.3.0 cannot train `model` split by `parallel`; an empty list means it can.

    `vocab_size` (default: the model's) and `seq_length` in tokens add the checks that need them. Imports no torch.
    """
    family = _latent_problems if model.architecture in DEEPSEEK else _grouped_problems
    return [
        *_position_problems(model, seq_length),
        *_feature_problems(model, parallel),
        *family(model, parallel),
        *_tensor_parallel_problems(model, parallel, vocab_size or model.vocab_size),
        *_sequence_problems(parallel, seq_length),
        *_stage_problems(model, parallel),
    ]


def _position_problems(model: ModelConfig, seq_length: int | None) -> Iterator[Problem]:
    scaling = model.rope_scaling
    key = "model.rope_scaling.rope_type"
    if scaling.rope_type == "linear":
        yield Problem(key=key, what="torchtitan has no linear position scaling", hint="use llama3 or yarn")
    if scaling.rope_type == "llama3" and model.architecture != "llama":
        yield Problem(key=key, what=f"torchtitan scales positions the llama3 way in llama, not in {model.architecture}")
    if scaling.rope_type in ("llama3", "yarn") and scaling.original_max_position_embeddings is None:
        yield Problem(
            key="model.rope_scaling.original_max_position_embeddings",
            what=f"{scaling.rope_type} scaling needs the context length before scaling",
        )
    if scaling.rope_type == "llama3" and scaling.high_freq_factor <= scaling.low_freq_factor:
        yield Problem(key="model.rope_scaling.high_freq_factor", what="must be greater than low_freq_factor")
    if seq_length is not None and seq_length > model.max_position_embeddings:
        yield Problem(
            key="training.seq_length",
            what=f"{seq_length} tokens are more than the model's {model.max_position_embeddings} positions",
            hint="shorten it, or raise model.max_position_embeddings with a rope_scaling that reaches so far",
        )


def _feature_problems(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
    if model.attention_bias:
        yield Problem(
            key="model.attention_bias",
            what="torchtitan's attention and its Hugging Face conversion have no biases",
            hint="set it to false",
        )
    if model.tie_word_embeddings and model.architecture in DEEPSEEK:
        yield Problem(key="model.tie_word_embeddings", what="torchtitan's DeepSeek conversion knows no tied embeddings")
    elif model.tie_word_embeddings and parallel.pp > 1:
        yield Problem(
            key="parallel.pp",
            what="torchtitan cannot tie the embedding of the first stage to the output of the last",
            hint="use parallel.pp=1, or model.tie_word_embeddings=false",
        )


def _grouped_problems(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
    strangers = [key for key in (*_EXPERT_KEYS, "q_lora_rank", *_LATENT_KEYS) if getattr(model, key) is not None]
    for key in strangers:
        yield Problem(
            key=f"model.{key}",
            what=f"the {model.architecture} family is dense with grouped-query attention and cannot use it",
            hint="leave it null, or choose model.architecture=deepseek_v2 or deepseek_v3",
        )
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


def _latent_problems(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
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
    if model.is_moe:
        yield from _expert_problems(model, parallel)


def _query_width(model: ModelConfig) -> int:
    return (model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0)


def _expert_problems(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
    experts = model.n_routed_experts or 0
    for key in ("moe_intermediate_size", "num_experts_per_tok"):
        if getattr(model, key) is None:
            yield Problem(key=f"model.{key}", what="a model with routed experts needs it")
    yield from _group_problems(model, experts)
    if parallel.etp > 1:
        yield Problem(
            key="parallel.etp", what="torchtitan 0.3 no longer splits one expert over ranks when parallel.ep is set"
        )
    if model.aux_loss_alpha and (parallel.tp > 1 or parallel.cp > 1):
        yield Problem(
            key="model.aux_loss_alpha",
            what="the balance loss is counted per sequence, which tensor and context parallel ranks do not hold whole",
            hint="use parallel.tp=1 parallel.cp=1, or model.aux_loss_alpha=0",
        )


def _group_problems(model: ModelConfig, experts: int) -> Iterator[Problem]:
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


def _tensor_parallel_problems(
    model: ModelConfig, parallel: ParallelConfig, vocab_size: int | None
) -> Iterator[Problem]:
    if parallel.tp == 1:
        return
    widths: dict[str, int | None] = {
        "intermediate_size": model.intermediate_size,
        "moe_intermediate_size": model.moe_intermediate_size if parallel.ep == 1 else None,
        "vocab_size": vocab_size,
    }
    for key, width in widths.items():
        if width is not None and width % parallel.tp:
            yield Problem(
                key="parallel.tp", what=f"{parallel.tp} ranks do not divide model.{key} {width}; shards must be equal"
            )


def _sequence_problems(parallel: ParallelConfig, seq_length: int | None) -> Iterator[Problem]:
    if seq_length is None:
        return
    pieces = (parallel.tp if parallel.sequence_parallel else 1) * (2 * parallel.cp if parallel.cp > 1 else 1)
    if parallel.cp > 1 and seq_length % (parallel.cp * _CP_BLOCK):
        yield Problem(
            key="training.seq_length",
            what=f"{seq_length} is not a multiple of {parallel.cp * _CP_BLOCK}, as parallel.cp={parallel.cp} needs",
            hint=f"use training.seq_length={max(1, seq_length // (parallel.cp * _CP_BLOCK)) * parallel.cp * _CP_BLOCK}",
        )
    elif seq_length % pieces:
        yield Problem(
            key="training.seq_length",
            what=f"{seq_length} is not a multiple of {pieces}, the pieces that tp and cp cut a sequence into",
        )


def _stage_problems(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
    stages = parallel.pp * parallel.vpp
    if parallel.pp > 1 and stages > model.num_hidden_layers:
        yield Problem(
            key="parallel.pp",
            what=f"{stages} pipeline stages are more than the {model.num_hidden_layers} layers",
            hint="lower parallel.pp or parallel.vpp",
        )
