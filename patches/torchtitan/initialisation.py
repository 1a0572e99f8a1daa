"""The patch that gives every layout the same initial weights on a processor."""

from __future__ import annotations

from typing import Any

from primus_hydra.patches.torchtitan.conditions import VERSIONS, on_cpu
from primus_hydra.patching import PatchContext, register_patch


@register_patch(
    "torchtitan.cpu-initial-weights",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    condition=on_cpu,
    tags=("cpu", "correctness"),
    why="DTensor keeps random numbers apart only on accelerators: on a processor every rank draws the same numbers "
    "into its own shard, and the model silently starts from repeated blocks",
)
def draw_whole_weights(context: PatchContext) -> None:
    """Draw the whole tensor on every rank, from the same generator state, and keep the shard."""
    from torch.distributed.tensor import DTensor, Replicate
    from torchtitan.protocols.module import Module

    original = Module._init_param

    def init_param(self: Any, name: str, param: Any) -> None:
        if not isinstance(param, DTensor) or param.device.type != "cpu":
            original(self, name, param)
            return
        # Starting from what is there keeps initialisers right that touch only a part, or nothing (tied weights).
        whole = param.full_tensor()
        original(self, name, whole)
        replicated = DTensor.from_local(
            whole, param.device_mesh, [Replicate()] * param.device_mesh.ndim, run_check=False
        )
        param.copy_(replicated)

    Module._init_param = init_param
