"""What torchtitan 0.3.0 cannot build of a neutral model, found without torch so that the launcher can refuse first.

`model_problems` is pure. Every key of `ModelConfig` either reaches torchtitan through the builders beside this module
or is named here with the reason; the two must be changed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from primus_hydra.config.architecture import LATENT, architecture_problems
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.config.schema.parallel import ParallelConfig
from primus_hydra.errors import Problem

UNBUILT: Final = {
    "gpt_oss": "torchtitan has blocks for gpt-oss, but no key of ours sets them yet",
    "llama4_text": "torchtitan 0.3 has no Llama 4: it was taken out after 0.2",
}
"""Architectures that are refused, and why."""
_NEAREST = "nearest that is built: mixtral or qwen3_moe"
# torch's context-parallel block mask covers whole blocks of 128 queries on every rank.
_CP_BLOCK = 128


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
    return [
        *architecture_problems(model, seq_length=seq_length),
        *_family_problems(model),
        *_scaling_problems(model),
        *_feature_problems(model, parallel),
        *(_expert_problems(model, parallel) if model.is_moe else ()),
        *_tensor_parallel_problems(model, parallel, vocab_size or model.vocab_size),
        *_sequence_problems(parallel, seq_length),
        *_stage_problems(model, parallel),
    ]


def _family_problems(model: ModelConfig) -> Iterator[Problem]:
    if model.architecture in UNBUILT:
        yield Problem(key="model.architecture", what=UNBUILT[model.architecture], hint=_NEAREST)
    elif model.sliding_window is not None:
        what = "torchtitan's blocks of this family attend to the whole document"
        yield Problem(key="model.sliding_window", what=what, hint="set it to null: every token is then seen")


def _scaling_problems(model: ModelConfig) -> Iterator[Problem]:
    scaling = model.rope_scaling
    key = "model.rope_scaling.rope_type"
    if scaling.rope_type == "linear":
        yield Problem(key=key, what="torchtitan has no linear position scaling", hint="use llama3 or yarn")
    if scaling.rope_type == "llama3" and scaling.high_freq_factor == scaling.low_freq_factor:
        what = "torchtitan divides by its distance from low_freq_factor"
        yield Problem(key="model.rope_scaling.high_freq_factor", what=what, hint="make it greater")
    if scaling.rope_type == "llama3" and model.architecture != "llama":
        yield Problem(key=key, what=f"torchtitan scales positions the llama3 way in llama, not in {model.architecture}")


def _feature_problems(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
    if model.attention_bias:
        yield Problem(
            key="model.attention_bias",
            what="torchtitan's attention and its Hugging Face conversion have no biases",
            hint="set it to false",
        )
    if model.tie_word_embeddings and model.architecture in LATENT:
        yield Problem(key="model.tie_word_embeddings", what="torchtitan's DeepSeek conversion knows no tied embeddings")
    elif model.tie_word_embeddings and parallel.pp > 1:
        yield Problem(
            key="parallel.pp",
            what="torchtitan cannot tie the embedding of the first stage to the output of the last",
            hint="use parallel.pp=1, or model.tie_word_embeddings=false",
        )


def _expert_problems(model: ModelConfig, parallel: ParallelConfig) -> Iterator[Problem]:
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


def _tensor_parallel_problems(
    model: ModelConfig, parallel: ParallelConfig, vocab_size: int | None
) -> Iterator[Problem]:
    if parallel.tp == 1:
        return
    widths: dict[str, int | None] = {
        "intermediate_size": model.intermediate_size,
        "moe_intermediate_size": model.expert_width if model.is_moe and parallel.ep == 1 else None,
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
