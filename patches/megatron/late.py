"""What megatron-core imports at its start and no rank needs before its first step is imported when it is used, if ever.

Together a third of the time until a fork server is ready, or until a rank that starts alone has joined the others.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext

from primus_hydra.patches.megatron.conditions import BACKENDS, VERSIONS, on_cpu
from primus_hydra.patching import PatchContext, register_patch
from primus_hydra.patching.late import compiled_late, imported_late


@register_patch(
    "megatron.late-imports",
    backend=BACKENDS,
    phase="before_import",
    versions=VERSIONS,
    priority=60,
    tags=("speed",),
    on_error="warn",
    why="megatron-core imports wandb and TensorBoard wherever they are installed, and on a processor torch's whole "
    "compiler for functions that are never called there; each delays every start by up to two seconds",
)
def import_core_late(context: PatchContext) -> None:
    """Import megatron-core with stand-ins for what reports; on a processor, torch.compile waits for a first call."""
    import torch

    from primus_hydra.backends.megatron.quiet import without_gpu_notices

    cpu = on_cpu(context)
    with (
        imported_late("wandb", "torch.utils.tensorboard"),
        compiled_late(torch) if cpu and not context.job.compile.enable else nullcontext(),
        without_gpu_notices() if cpu else nullcontext(),
    ):
        importlib.import_module("megatron.core")
        importlib.import_module("megatron.core.inference.contexts.dynamic_context")
