"""Patches of what torchtitan does between ranks: barriers, reductions, and waiting at the end."""

from __future__ import annotations

import functools
import time
import types
from typing import TYPE_CHECKING, Any

from primus_hydra.patches.torchtitan.conditions import VERSIONS, experts_split_on_cpu, on_cpu
from primus_hydra.patching import PatchContext, register_patch

if TYPE_CHECKING:
    from datetime import timedelta

    from torch import Tensor


@register_patch(
    "torchtitan.cpu-barrier",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    condition=on_cpu,
    tags=("cpu",),
    why="after the first step torchtitan passes a barrier with device ids, and the processor's is the word cpu: "
    "TypeError",
)
def barrier_without_device(context: PatchContext) -> None:
    """Replace the change of timeouts after the first step by the same without device ids."""
    from torchtitan.distributed import utils

    utils.set_pg_timeouts = _set_timeouts


def _set_timeouts(timeout: timedelta, parallel_dims: Any) -> None:
    import torch.distributed as dist

    # As in torchtitan: no rank may start under the new timeout while another is still in a slow first step.
    dist.barrier()
    for mesh in parallel_dims.get_all_one_dimensional_meshes().values():
        dist.set_timeout(timeout, mesh.get_group())
    dist.set_timeout(timeout, None)


@register_patch(
    "torchtitan.cpu-sum-reduction",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    condition=on_cpu,
    tags=("cpu",),
    why="FSDP turns a gradient divisor of one into a scaled sum, which gloo lacks: 'Cannot use ReduceOp.PREMUL_SUM "
    "with Gloo'",
)
def reduce_by_plain_sum(context: PatchContext) -> None:
    """Ask FSDP for plain sums, by its public switch, wherever torchtitan turns gradient division off."""
    from torch.distributed.fsdp import FSDPModule
    from torchtitan.distributed import fsdp

    original = fsdp.disable_fsdp_gradient_division

    @functools.wraps(original)
    def disable(model: Any) -> None:
        original(model)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)

    fsdp.disable_fsdp_gradient_division = disable


class _GlooDistributed(types.ModuleType):
    """`torch.distributed`, except that `all_to_all` takes chunks of different sizes with gloo."""

    def __getattr__(self, name: str) -> Any:
        import torch.distributed as dist

        return getattr(dist, name)

    @staticmethod
    def all_to_all(received: list[Tensor], sent: list[Tensor], group: Any = None) -> None:
        """Exchange lists of tensors through one flat buffer each way."""
        import torch
        import torch.distributed as dist

        counts = [chunk.numel() for chunk in received]
        buffer = torch.empty(sum(counts), dtype=received[0].dtype)
        flat = torch.cat([chunk.reshape(-1) for chunk in sent])
        dist.all_to_all_single(buffer, flat, counts, [chunk.numel() for chunk in sent], group=group)
        for chunk, part in zip(received, torch.split(buffer, counts), strict=True):
            chunk.copy_(part.view_as(chunk))


@register_patch(
    "torchtitan.cpu-expert-exchange",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    condition=experts_split_on_cpu,
    tags=("cpu",),
    why="expert parallel ranks exchange different numbers of tokens, which gloo's all_to_all refuses: 'invalid tensor "
    "size'; its all_to_all_single does not",
)
def exchange_through_one_buffer(context: PatchContext) -> None:
    """Give spmd_types, which torchtitan exchanges tokens with, an `all_to_all` that gloo can do."""
    from spmd_types import _dist

    _dist.set_dist(_GlooDistributed("torch.distributed"))


@register_patch(
    "torchtitan.end-barrier",
    backend="torchtitan",
    phase="build_args",
    versions=VERSIONS,
    tags=("speed",),
    why="torchtitan ends every run by two seconds of sleep on rank 0, in the hope that the other ranks are done by "
    "then; a barrier waits exactly as long as needed",
)
def meet_instead_of_sleeping(context: PatchContext) -> None:
    """Let all ranks meet after the training loop, and take the sleep away."""
    import torchtitan.trainer as module

    clock = types.ModuleType("time")
    clock.__dict__.update(vars(time), sleep=lambda seconds: None)
    module.time = clock
    original = module.Trainer.train

    @functools.wraps(original)
    def train(self: Any) -> None:
        original(self)
        _meet()

    module.Trainer.train = train


def _meet() -> None:
    import torch.distributed as dist
    from torchtitan.tools.utils import device_module, device_type

    if dist.get_world_size() == 1:
        return
    # With its device named, an accelerator's barrier needs no guess (and gives no warning).
    dist.barrier(device_ids=None if device_type == "cpu" else [device_module.current_device()])
