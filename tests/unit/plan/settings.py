"""Settings for the tests of the plan, made from the words of a command line."""

from __future__ import annotations

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.plan.setting import Setting, setting_of

PLAIN_LOSS = "backend.config.loss._target_=torchtitan.components.loss.CrossEntropyLoss.Config"


def job_of(*overrides: str) -> JobConfig:
    """Compose a job."""
    return compose(Request(overrides=[*overrides])).job


def setting(*overrides: str) -> Setting:
    """Compose a job that has a layout, and return its setting."""
    job = job_of(*overrides)
    layout, problems = layout_of(job)
    assert layout is not None, problems
    return setting_of(job, layout, job.model.vocab_size or 4096)
