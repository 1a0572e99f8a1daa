"""The families of models: which keys each has, and what its published code fixes.

A key that a family does not have must stay at its default, else a setting would have no effect; one that the family
fixes must say so. Pure data and checks; sizes that contradict each other are for `architecture`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, Literal

from primus_hydra.config.schema.model import EXPERTS_OF_FULL_WIDTH, Architecture, ModelConfig
from primus_hydra.errors import Problem

LATENT: Final = ("deepseek_v2", "deepseek_v3")
"""Architectures with latent attention, and with routed experts where the model names them."""

_MLA: Final = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank")
_ROUTED: Final = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "scoring_func", "norm_topk_prob")
_BALANCED: Final = ("aux_loss_alpha", "routed_scaling_factor")
_GROUPS: Final = ("n_shared_experts", "n_group", "topk_group", "first_k_dense_replace")
_LLAMA4: Final = ("attention_chunk_size", "no_rope_layer_interval", "use_qk_norm", "attn_temperature_tuning")
_LLAMA4_SCALE: Final = ("floor_scale", "attn_scale")
_STEP: Final = "interleave_moe_layer_step"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Keys that only some families have and this one too, what it fixes, and whether it routes tokens to experts."""

    keys: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    experts: Literal["no", "may", "must"] = "no"


_SOFTMAX: Final = {"scoring_func": "softmax", "routed_scaling_factor": 1.0}
_DEEPSEEK: Final = Family(keys=("attention_bias", *_MLA, *_ROUTED, *_BALANCED, *_GROUPS), experts="may")
FAMILIES: Final[Mapping[Architecture, Family]] = {
    "llama": Family(keys=("attention_bias",)),
    "qwen2": Family(),
    "qwen3": Family(keys=("attention_bias",)),
    "qwen3_moe": Family(
        keys=("attention_bias", *_ROUTED, "aux_loss_alpha", "first_k_dense_replace", _STEP),
        fixed=_SOFTMAX,
        experts="must",
    ),
    "mixtral": Family(
        keys=(*_ROUTED, "aux_loss_alpha", "sliding_window"), fixed={**_SOFTMAX, "norm_topk_prob": True}, experts="must"
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "gpt_oss": Family(
        keys=("attention_bias", *_ROUTED, "aux_loss_alpha", "sliding_window", "swiglu_limit"),
        fixed={**_SOFTMAX, "norm_topk_prob": True},
        experts="must",
    ),
    "llama4_text": Family(
        keys=("attention_bias", *_ROUTED, "aux_loss_alpha", "n_shared_experts", _STEP, *_LLAMA4, *_LLAMA4_SCALE),
        fixed={"scoring_func": "sigmoid", "norm_topk_prob": False, "n_shared_experts": 1},
        experts="must",
    ),
}
"""What `transformers` and the published code of each family have."""
SPECIAL: Final = tuple(dict.fromkeys(key for family in FAMILIES.values() for key in (*family.keys, *family.fixed)))
"""Keys that some family lacks."""
DEFAULTS: Final = {item.name: item.default for item in fields(ModelConfig) if item.default is not MISSING}


def family_problems(model: ModelConfig) -> list[Problem]:
    """Return the keys that say something which the model's family does not have, or has otherwise."""
    family = FAMILIES[model.architecture]
    return [*_foreign(model, family), *_fixed(model, family), *_experts(model, family)]


def _foreign(model: ModelConfig, family: Family) -> Iterator[Problem]:
    for key in SPECIAL:
        if key in family.keys or key in family.fixed or getattr(model, key) == DEFAULTS[key]:
            continue
        having = [name for name, other in FAMILIES.items() if key in other.keys]
        default = DEFAULTS[key]
        leave = "leave it null" if default is None else f"leave it at {str(default).lower()}"
        yield Problem(
            key=f"model.{key}",
            what=f"the {model.architecture} family cannot use it{_why(model, key)}",
            hint=f"{leave}; families with it: {', '.join(having)}",
        )


def _why(model: ModelConfig, key: str) -> str:
    if key == "attention_bias" and model.architecture == "qwen2":
        return ": queries, keys and values always have biases there, the output never"
    if key in _ROUTED:
        return ": it has no experts"
    return ": its attention is not latent" if key in _MLA else ""


def _fixed(model: ModelConfig, family: Family) -> Iterator[Problem]:
    for key, value in family.fixed.items():
        if getattr(model, key) != value:
            word = str(value).lower()
            what = f"the {model.architecture} family has {word} here, not {str(getattr(model, key)).lower()}"
            yield Problem(key=f"model.{key}", what=what, hint=f"set it to {word}")


def _experts(model: ModelConfig, family: Family) -> Iterator[Problem]:
    if family.experts == "must" and not model.is_moe:
        yield Problem(key="model.n_routed_experts", what=f"the {model.architecture} family needs routed experts")
    if model.architecture in EXPERTS_OF_FULL_WIDTH and model.moe_intermediate_size not in (
        None,
        model.intermediate_size,
    ):
        what = f"an expert of the {model.architecture} family is as wide as model.intermediate_size says"
        yield Problem(key="model.moe_intermediate_size", what=what, hint="leave it null")
    if model.architecture == "gpt_oss" and model.swiglu_limit is None:
        yield Problem(key="model.swiglu_limit", what="the gpt_oss family needs it", hint="published: 7.0")
