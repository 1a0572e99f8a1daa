"""From the neutral configuration to upstream's arguments.

What neutral keys mean for Megatron is said once, in `native.neutral_sections`; here its fields get the names of
upstream's arguments. A field without an argument goes into upstream's namespace under its own name, where upstream
looks for fields of the classes that it fills.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from primus_hydra.backends.megatron.native import Section, neutral_sections
from primus_hydra.backends.megatron.training.describe import Arguments
from primus_hydra.backends.megatron.training.limits import core_job
from primus_hydra.backends.megatron.training.words import DERIVED, INVERTED, argument_of
from primus_hydra.config.init_from import hf_folder
from primus_hydra.config.schema import JobConfig
from primus_hydra.run.init_from import require_checkpoint
from primus_hydra.runtime.contracts import RankContext

_SECTIONS = ("transformer", "optimizer", "ddp", "model")
_PATTERNS = (list, tuple)


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What the neutral keys say: arguments by name, and fields that no argument sets."""

    arguments: Mapping[str, Any]
    fields: Mapping[str, Any]


def meaning_of(job: JobConfig, context: RankContext, arguments: Arguments) -> Meaning:
    """Translate every neutral key; a job that `limits` refuses must not come here."""
    sections = neutral_sections(core_job(job), context)
    said = dict(_fields(sections))
    beyond = {
        # Upstream's argument takes whole numbers only.
        "rotary_base": said.pop("rotary_base"),
        # Upstream plans a save and hands over the writing. Its arguments allow that only with its own writers.
        "async_save": job.checkpoint.enable,
    }
    named = {name: value for name, value in said.items() if name in arguments}
    defaults = {name: value for name, value in _defaults(job).items() if name in arguments}
    return Meaning(
        arguments={**named, **defaults, **_model(sections), **_run(job, context)},
        fields={name: value for name, value in said.items() if name not in arguments and value is not None} | beyond,
    )


def _fields(sections: Mapping[str, Section]) -> Iterator[tuple[str, Any]]:
    for section in _SECTIONS:
        for field, value in sections[section][1].items():
            path = f"{section}.{field}"
            if path not in DERIVED and not isinstance(value, torch.dtype):
                yield argument_of(path), _as_argument(not value if path in INVERTED else value)


def _as_argument(value: Any) -> Any:
    # A list here is a pattern over layers, which upstream reads as Python text without spaces.
    return str(value).replace(" ", "") if isinstance(value, _PATTERNS) else value


def _model(sections: Mapping[str, Section]) -> dict[str, Any]:
    transformer = sections["transformer"][1]
    return {
        "swiglu": bool(transformer["gated_linear_unit"]),
        "group_query_attention": transformer.get("num_query_groups") is not None,
    }


def _run(job: JobConfig, context: RankContext) -> dict[str, Any]:
    layout = context.layout
    return {
        "micro_batch_size": layout.micro_batch_size,
        "global_batch_size": layout.global_batch_size,
        "seq_length": job.training.seq_length,
        "max_position_embeddings": max(job.model.max_position_embeddings, job.training.seq_length),
        "train_iters": job.training.steps,
        "seed": job.training.seed,
        "log_interval": job.metrics.log_every,
        "eval_iters": job.validation.steps if job.validation.enable else 0,
        "eval_interval": job.validation.every,
        "distributed_backend": "gloo" if job.platform.is_cpu else "nccl",
        "enable_one_logger": False,
        # Upstream's schedule is not used; its own rule asks that it ends where it began.
        "lr_decay_style": "constant",
        **_checkpoints(job, context),
    }


def _checkpoints(job: JobConfig, context: RankContext) -> dict[str, Any]:
    root = str(context.paths.checkpoints)
    saving = {"save": root, "save_interval": job.checkpoint.every} if job.checkpoint.enable else {}
    if context.resume_from is not None:
        return {**saving, "load": root, "ckpt_step": context.resume_from}
    if job.init_from is not None and hf_folder(job.init_from) is None:
        # Upstream wants a step; the folder itself is what is read.
        return {**saving, "load": str(require_checkpoint(job)), "ckpt_step": 1, "finetune": True}
    return saving


def _defaults(job: JobConfig) -> dict[str, Any]:
    """Return what is best here and has no neutral key; native keys may say otherwise."""
    common = {
        # Of upstream's strategies this one needs no package of its own.
        "async_strategy": "mcore",
        "dist_ckpt_optim_fully_reshardable": True,
        # Where an argument begins with another value than the field that it fills.
        "attention_softmax_in_fp32": True,
        "yarn_correction_range_round_to_int": job.model.rope_scaling.truncate,
        # Upstream refuses several chunks on two pipeline ranks otherwise.
        **({"overlap_p2p_comm": True} if job.parallel.vpp > 1 else {}),
    }
    if not job.platform.is_cpu:
        return common
    return {
        **common,
        "gradient_accumulation_fusion": False,
        "masked_softmax_fusion": False,
        "no_persist_layer_norm": True,
        "num_workers": 0,
    }
