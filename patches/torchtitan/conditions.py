"""Conditions that several patches share."""

from __future__ import annotations

import importlib.util

from primus_hydra.patching import PatchContext

VERSIONS = ">=0.3,<0.4"


def on_cpu(context: PatchContext) -> bool:
    """The platform has no accelerator."""
    return context.job.platform.is_cpu


def experts_split_on_cpu(context: PatchContext) -> bool:
    """The platform has no accelerator, and the experts are split over ranks."""
    return on_cpu(context) and context.job.parallel.ep > 1


def triton_missing(context: PatchContext) -> bool:
    """Triton is not installed."""
    return importlib.util.find_spec("triton") is None


def pipelined(context: PatchContext) -> bool:
    """The model is split into pipeline stages."""
    return context.job.parallel.pp > 1
