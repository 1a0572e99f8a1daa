"""Conditions and versions that several patches of Megatron share."""

from __future__ import annotations

import importlib.util

from primus_hydra.patching import PatchContext

BACKENDS = ("megatron", "megatron_training")
"""megatron-core serves both: our own training loop, and upstream's."""

VERSIONS = ">=0.16,<0.20"


def on_cpu(context: PatchContext) -> bool:
    """The platform has no accelerator."""
    return context.job.platform.is_cpu


def engine_missing(context: PatchContext) -> bool:
    """Transformer Engine is not installed."""
    return not installed("transformer_engine")


def installed(package: str) -> bool:
    """Whether a package can be found, without importing it."""
    return importlib.util.find_spec(package) is not None
