"""Patches that must be in place before torchtitan is imported."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

from primus_hydra.patches.torchtitan.conditions import VERSIONS, on_cpu, triton_missing
from primus_hydra.patching import PatchContext, register_patch

KERNELS = "torchtitan.distributed.minimal_async_ep.kernels"
_KERNEL_NAMES = (
    "copy_full_counts_to_peers_kernel",
    "copy_rows_to_peers_kernel",
    "expand_topk_grad_kernel",
    "fill_combine_metadata_kernel",
    "fill_dispatch_metadata_kernel",
    "invert_flat_indices_kernel",
    "reduce_topk_slots_kernel",
    "topk_scores_grad_kernel",
)


@register_patch(
    "torchtitan.no-triton",
    backend="torchtitan",
    phase="before_import",
    versions=VERSIONS,
    condition=triton_missing,
    priority=10,
    tags=("packaging",),
    why="torchtitan imports triton for one expert-parallel dispatcher without declaring it; every model then fails "
    "with ModuleNotFoundError",
)
def stand_in_for_triton_kernels(context: PatchContext) -> None:
    """Put a module in the place of the triton kernels; calling one of them says what is missing."""
    module = types.ModuleType(KERNELS)
    for name in _KERNEL_NAMES:
        setattr(module, name, _absent(name))
    sys.modules[KERNELS] = module


def _absent(name: str) -> Callable[..., None]:
    def kernel(*args: object, **kwargs: object) -> None:
        raise RuntimeError(f"{name} needs triton, which is not installed")

    return kernel


@register_patch(
    "torchtitan.cpu-device",
    backend="torchtitan",
    phase="before_import",
    versions=VERSIONS,
    condition=on_cpu,
    priority=20,
    tags=("cpu",),
    why="torchtitan falls back to cuda where torch finds no accelerator, and takes one that it finds even if the job "
    "is for the processor; other modules copy the answer when they are imported",
)
def choose_the_cpu(context: PatchContext) -> None:
    """Import torchtitan's device module first, with the processor as the only answer."""
    early = sorted(name for name in ("torchtitan.trainer", "torchtitan.distributed.utils") if name in sys.modules)
    if early:
        raise RuntimeError(f"{', '.join(early)} was imported before its device could be chosen")
    import torch
    from torchtitan.tools import utils

    utils.device_type, utils.device_module = "cpu", torch.cpu
