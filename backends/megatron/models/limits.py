"""What Megatron cannot build of a neutral model, found without torch so that the launcher can refuse first.

Every key of `ModelConfig` either reaches Megatron through the modules beside this one or is named here, or in
`config.architecture`, with the reason; they must be changed together. How it is split over ranks: see `split`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from primus_hydra.config.architecture import LATENT, architecture_problems
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.errors import Problem

LLAMA3_SCALING = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What Megatron's `rope_scaling` takes for granted (RotaryEmbedding._apply_scaling)."""
UNBUILT: Final = {
    "gpt_oss": "our loop on Megatron does not build gpt-oss: the bias of its router, its windows in every other layer "
    "and its biased, clamped experts",
    "llama4_text": "our loop on Megatron does not build Llama 4: attention in chunks, layers without rotary positions "
    "and experts whose input, not output, is weighed",
}
"""Architectures that are refused, and why."""
_NEAREST = "nearest that is built: mixtral or qwen3_moe"
_EXPERT_KEYS = ("n_shared_experts", "num_experts_per_tok", "moe_intermediate_size")


def model_problems(model: ModelConfig, *, seq_length: int | None = None) -> list[Problem]:
    """Return every reason why Megatron cannot build `model`; an empty list means it can."""
    return [
        *architecture_problems(model, seq_length=seq_length),
        *_family_problems(model),
        *_position_problems(model),
        *_bias_problems(model),
        *(_router_problems(model) if model.is_moe else _dense_problems(model)),
    ]


def group_experts(model: ModelConfig) -> int:
    """Return how many of its best experts rank a group of experts: one in DeepSeek-V2, two in V3."""
    return 1 if model.architecture == "deepseek_v2" else 2


def limits_groups(model: ModelConfig) -> bool:
    """Whether a token may reach only some of the groups of experts."""
    return (model.topk_group or model.n_group or 1) < (model.n_group or 1)


def _family_problems(model: ModelConfig) -> Iterator[Problem]:
    if model.architecture in UNBUILT:
        yield Problem(key="model.architecture", what=UNBUILT[model.architecture], hint=_NEAREST)
    elif model.sliding_window is not None:
        yield Problem(
            key="model.sliding_window",
            what="our loop on Megatron masks documents by their borders, and has no window beside that",
            hint="set it to null: every token is then seen",
        )


def _position_problems(model: ModelConfig) -> Iterator[Problem]:
    scaling, key = model.rope_scaling, "model.rope_scaling"
    if model.architecture in LATENT and not scaling.truncate:
        what = "Megatron's latent attention rounds the bounds of yarn's ramp"
        yield Problem(key=f"{key}.truncate", what=what, hint="set it to true")
    if model.architecture in LATENT and scaling.rope_type in ("llama3", "linear"):
        what = f"Megatron's latent attention has no {scaling.rope_type} position scaling"
        yield Problem(key=f"{key}.rope_type", what=what, hint="use yarn, or null")
    elif scaling.rope_type == "llama3":
        for name, fixed in LLAMA3_SCALING.items():
            value = getattr(scaling, name)
            if value is not None and value != fixed:
                what = f"Megatron's llama3 scaling has {fixed:g} built in and cannot take {value:g}"
                yield Problem(key=f"{key}.{name}", what=what, hint=f"set it to {fixed:g}, or rope_type=yarn")


def _bias_problems(model: ModelConfig) -> Iterator[Problem]:
    if model.attention_bias:
        yield Problem(
            key="model.attention_bias",
            what="it means a bias in the query, key, value and output projections; Megatron has one in the first three "
            "or in every linear layer",
            hint="set it to false",
        )


def _dense_problems(model: ModelConfig) -> Iterator[Problem]:
    if model.architecture in LATENT:
        for key in _EXPERT_KEYS:
            if getattr(model, key) is not None:
                what = "a model without routed experts cannot use it"
                yield Problem(key=f"model.{key}", what=what, hint="leave it null, or set model.n_routed_experts")


def _router_problems(model: ModelConfig) -> Iterator[Problem]:
    chosen = model.num_experts_per_tok or 0
    if model.scoring_func == "sigmoid" and model.norm_topk_prob != (chosen > 1):
        what = "Megatron normalises the sigmoid scores of several chosen experts, and never that of a single one"
        yield Problem(key="model.norm_topk_prob", what=what, hint=f"set it to {str(chosen > 1).lower()}")
    if model.scoring_func == "softmax" and model.norm_topk_prob and chosen == 1:
        what = "the normalised score of a single expert is always 1, and teaches the router nothing"
        yield Problem(key="model.norm_topk_prob", what=what, hint="set it to false")
    if model.architecture == "deepseek_v3" and model.scoring_func == "softmax":
        what = "DeepSeek-V3 balances its experts by a bias on the scores, which Megatron has for sigmoid scores only"
        yield Problem(key="model.scoring_func", what=what, hint="use sigmoid, or model.architecture=deepseek_v2")
    if limits_groups(model):
        yield from _group_problems(model, chosen)


def _group_problems(model: ModelConfig, chosen: int) -> Iterator[Problem]:
    kept, wanted = model.topk_group or 1, group_experts(model)
    if chosen // kept != wanted:
        what = (
            f"Megatron ranks a group by its num_experts_per_tok // topk_group = {chosen // kept} best experts, "
            f"and {model.architecture} by {wanted}"
        )
        yield Problem(key="model.topk_group", what=what, hint="use topk_group=n_group, which limits nothing")
    elif model.scoring_func == "softmax" and model.norm_topk_prob and wanted > 1:
        what = "Megatron ranks groups by sums of logits, not of scores, where softmax scores are normalised"
        yield Problem(key="model.norm_topk_prob", what=what, hint="set it to false, or topk_group=n_group")
