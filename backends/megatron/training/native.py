"""What the trainer is built from: upstream's namespace, and what plain code says beside it.

Native keys win over what is only best for the hardware; they cannot touch what a neutral key owns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.training.argument_utils import core_transformer_config_from_args

from primus_hydra.backends.megatron.limits import packs_documents
from primus_hydra.backends.megatron.native import Section, neutral_sections
from primus_hydra.backends.megatron.sections import GptModel, Schedule
from primus_hydra.backends.megatron.training.arguments import meaning_of
from primus_hydra.backends.megatron.training.argv import command_line
from primus_hydra.backends.megatron.training.limits import core_job, job_problems
from primus_hydra.backends.megatron.training.native_keys import problems_of
from primus_hydra.backends.megatron.training.parser import parse, upstream_arguments
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import raise_all
from primus_hydra.runtime.contracts import RankContext


@dataclass(kw_only=True)
class UpstreamConfig:
    """`argv` is what upstream was told, `args` its validated namespace with the fields that no argument sets.

    `transformer_class` is the class that upstream fills, `transformer` what comes of it; `dataset` is None unless
    `data=megatron`. `packs_documents`: the layers take packed sequences instead of a mask.
    """

    argv: list[str]
    args: Any
    transformer_class: type[TransformerConfig]
    transformer: TransformerConfig
    model: GptModel
    schedule: Schedule
    dataset: GPTDatasetConfig | None
    packs_documents: bool


def upstream_config(job: JobConfig, context: RankContext) -> UpstreamConfig:
    """Return the configuration of one rank; raises UserError with every problem, upstream's own included."""
    arguments = upstream_arguments()
    raise_all([*job_problems(job), *problems_of(job.backend.config, arguments)])
    meaning = meaning_of(job, context, arguments)
    argv = command_line({**meaning.arguments, **job.backend.config}, arguments)
    args = parse(argv)
    for name, value in meaning.fields.items():
        setattr(args, name, value)
    sections = neutral_sections(core_job(job), context)
    return UpstreamConfig(
        argv=argv,
        args=args,
        transformer_class=sections["transformer"][0],
        transformer=core_transformer_config_from_args(args, sections["transformer"][0]),
        model=_model(sections["model"], args),
        schedule=Schedule(**sections["schedule"][1]),
        dataset=sections["dataset"][0](**sections["dataset"][1]) if "dataset" in sections else None,
        packs_documents=packs_documents(core_job(job)),
    )


def _model(section: Section, args: Any) -> GptModel:
    fields = {**section[1], "fp16_lm_cross_entropy": args.fp16_lm_cross_entropy}
    model: GptModel = section[0](**fields)
    return model
