"""What torchtitan imports at its start and no rank needs before its first step is imported when it is used, if ever.

Together half of the time until a fork server is ready, or until a rank that starts alone has joined the others.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext

from primus_hydra.patches.torchtitan.conditions import VERSIONS, on_cpu
from primus_hydra.patching import PatchContext, register_patch
from primus_hydra.patching.late import compiled_late, imported_late, not_installed

_MAY_QUANTIZE = ("_target_", "quantiz", "float8", "fp8", "fp4", "torchao")
"""Words in the backend's own keys after which torchtitan's converters must be whole."""


def without_fp8(context: PatchContext) -> bool:
    """The job trains without fp8, with our own trainer."""
    job = context.job
    own = str(job.backend.config).lower()
    return job.precision.fp8 is None and job.backend.trainer is None and not any(word in own for word in _MAY_QUANTIZE)


def nothing_compiled(context: PatchContext) -> bool:
    """The platform has no accelerator, and the job compiles nothing."""
    return on_cpu(context) and not context.job.compile.enable


@register_patch(
    "torchtitan.late-datasets",
    backend="torchtitan",
    phase="before_import",
    versions=VERSIONS,
    priority=60,
    tags=("speed",),
    on_error="warn",
    why="torchtitan's own data loaders import datasets, pandas and pyarrow at the start, and its metrics TensorBoard; "
    "the tokens of a job come from elsewhere, and each import delays every start by up to two seconds",
)
def import_data_and_boards_late(context: PatchContext) -> None:
    """Import the modules that want them with stand-ins for datasets, TensorBoard and networkx."""
    with imported_late("datasets", "datasets.distributed", "torch.utils.tensorboard", "networkx"):
        importlib.import_module("torchtitan.hf_datasets.text_datasets")
        importlib.import_module("torchtitan.components.metrics")
        importlib.import_module("torchtitan.distributed.activation_checkpoint")


@register_patch(
    "torchtitan.late-torchao",
    backend="torchtitan",
    phase="before_import",
    versions=VERSIONS,
    condition=without_fp8,
    priority=40,
    tags=("speed",),
    on_error="warn",
    why="torchtitan imports torchao wherever it is installed, for seconds, also for a job without fp8",
)
def import_without_torchao(context: PatchContext) -> None:
    """Import torchtitan's converters as where torchao is not installed, which they provide for."""
    with not_installed("torchao"):
        importlib.import_module("torchtitan.components.quantization")


@register_patch(
    "torchtitan.late-compiler",
    backend="torchtitan",
    phase="before_import",
    versions=VERSIONS,
    condition=nothing_compiled,
    priority=30,
    tags=("speed", "cpu"),
    on_error="warn",
    why="torchtitan's attention calls torch.compile when it is imported, which imports torch's whole compiler; on a "
    "processor the compiled functions are never called",
)
def compile_attention_late(context: PatchContext) -> None:
    """Import torchtitan's attention with a torch.compile that compiles at the first call."""
    import torch

    with compiled_late(torch), not_installed("torchao") if without_fp8(context) else nullcontext():
        importlib.import_module("torchtitan.models.common.attention")
