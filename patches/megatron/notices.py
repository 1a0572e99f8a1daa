"""Patches that keep silent what Megatron tells its own developers, or what cannot be changed by who reads it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

from primus_hydra.patches.megatron.conditions import BACKENDS, VERSIONS, on_cpu
from primus_hydra.patching import PatchContext, register_patch

_WARNINGS = (
    # What is missing is told by `task=deps` and before a run.
    (r"(Transformer Engine and )?Apex (is|are) not installed\.", r"megatron\."),
    (r"Only transformer-engine>=", r"megatron\."),
    # A default of Megatron's own, which its next line replaces.
    (r"full scope is deprecated\.", r"megatron\."),
    (r"MimoModelConfig is experimental", r"megatron\."),
    # The distributed optimizer asks for the gradients of its views, knowing that there are none.
    (r"The \.grad attribute of a Tensor that is not a leaf", r"megatron\."),
    (r"`torch\.distributed\.(reduce_scatter_tensor|all_gather_into_tensor)` is deprecated", r"torch\.distributed\."),
)
_LOG_LINES = (
    ("megatron.core.models.gpt.gpt_model", "GPTModel IS DEPRECATED"),
    ("megatron.core.distributed.distributed_data_parallel", "DistributedDataParallel: full_param_layout not provided"),
    ("megatron.core.dist_checkpointing.strategies.torch", "MCore's async save is deprecated"),
)
_LOG_LINES_ON_CPU = (
    ("megatron.core.tensor_parallel.random", "CPU RNG state changed within GPU RNG context"),
    ("torch.utils.cpp_extension", "No CUDA runtime is found"),
)


@register_patch(
    "megatron.notices",
    backend=BACKENDS,
    phase="before_import",
    versions=VERSIONS,
    tags=("noise",),
    why="every rank prints a page about packages that are not there and about plans of Megatron's developers, in which "
    "a warning about the run itself is lost",
)
def drop_notices(context: PatchContext) -> None:
    """Drop these messages by their text and by the module that gives them; all others pass."""
    for message, module in _WARNINGS:
        warnings.filterwarnings("ignore", message=message, module=module)
    for logger, beginning in _LOG_LINES:
        _drop(logger, beginning)


@register_patch(
    "megatron.cpu-notices",
    backend=BACKENDS,
    phase="before_import",
    versions=VERSIONS,
    condition=on_cpu,
    tags=("cpu", "noise"),
    why="Megatron warns whenever the processor's random numbers are drawn while its GPU's generator is forked; here "
    "both are one generator, and with dropout every layer warns in every microbatch. torch misses a GPU when Megatron "
    "is imported",
)
def drop_notices_about_gpus(context: PatchContext) -> None:
    """Drop these two messages."""
    for logger, beginning in _LOG_LINES_ON_CPU:
        _drop(logger, beginning)


def _drop(logger: str, beginning: str) -> None:
    logging.getLogger(logger).addFilter(_unlike(beginning))


def _unlike(beginning: str) -> Callable[[logging.LogRecord], bool]:
    return lambda record: not str(record.msg).startswith(beginning)
