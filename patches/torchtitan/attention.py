"""Patches that let FlexAttention models train on a processor."""

from __future__ import annotations

from primus_hydra.patches.torchtitan.conditions import VERSIONS, on_cpu
from primus_hydra.patching import PatchContext, register_patch

CPU_ATTENTION = "primus_hydra.backends.torchtitan.cpu_attention.flex_on_cpu"
"""The override, as torchtitan's `override.imports` names it."""


@register_patch(
    "torchtitan.cpu-attention",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    condition=on_cpu,
    tags=("cpu",),
    why="FlexAttention, the only attention of torchtitan's language models with document masks everywhere, has no "
    "backward on a processor",
)
def attend_by_sdpa(context: PatchContext) -> None:
    """Activate our override of FlexAttention."""
    imports = context.native.override.imports
    if CPU_ATTENTION not in imports:
        imports.append(CPU_ATTENTION)


@register_patch(
    "torchtitan.cpu-block-mask",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    condition=on_cpu,
    tags=("cpu", "speed"),
    why="torchtitan and torch's context parallelism compile the creation of block masks, which costs a C++ compiler "
    "run in the first step, for a block sparsity that the processor's kernel does not use",
)
def create_block_masks_eagerly(context: PatchContext) -> None:
    """Create block masks without compilation and without looking into the blocks."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as context_parallel
    from torchtitan.models.common import attention

    from primus_hydra.backends.torchtitan.cpu_attention import create_block_mask_on_cpu

    attention._compiled_create_block_mask = create_block_mask_on_cpu
    context_parallel._compiled_create_block_mask = create_block_mask_on_cpu  # type: ignore[assignment]
