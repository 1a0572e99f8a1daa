"""What upstream's loop cannot do of a neutral job, found without torch: what `backend=megatron` cannot, and more."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from primus_hydra.backends.megatron.limits import job_problems as core_problems
from primus_hydra.backends.megatron.training.words import argument_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem

_CORE_KEY = re.compile(r"backend\.config\.((?:transformer|optimizer|ddp|model)\.(\w+))")


def job_problems(job: JobConfig) -> list[Problem]:
    """Return everything that stands against training `job` with upstream's loop, native keys apart."""
    return [*map(in_our_words, core_problems(core_job(job))), *_own_problems(job)]


def core_job(job: JobConfig) -> JobConfig:
    """Return the job as `backend=megatron` would have it, so that its rules and its translation can be used.

    Of the native keys only the choice of layers is carried over.
    """
    layers = job.backend.config.get("transformer_impl")
    config = {"model": {"layer_implementation": layers}} if layers in ("local", "transformer_engine") else {}
    return dataclasses.replace(job, backend=dataclasses.replace(job.backend, config=config))


def _own_problems(job: JobConfig) -> Iterator[Problem]:
    if job.training.seed == 0:
        yield Problem(key="training.seed", what="upstream's loop wants a seed above zero", hint="choose another")


def in_our_words(problem: Problem) -> Problem:
    """Name upstream's arguments where a problem names keys of the other backend."""
    hint = None if problem.hint is None else _CORE_KEY.sub(_argument, problem.hint)
    key = None if problem.key is None else _CORE_KEY.sub(_argument, problem.key)
    return dataclasses.replace(problem, key=key, hint=hint)


def _argument(found: re.Match[str]) -> str:
    return f"backend.config.{argument_of(found[1])}"
