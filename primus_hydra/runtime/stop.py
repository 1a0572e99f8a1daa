"""Stopping in the middle: all ranks agree on the step after which they stop.

Once per step the ranks compare their notes (`runtime.signals`) with one small collective on a group of their own, so
that a signal to one rank, or to all of them at different steps, stops all after the same step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from primus_hydra.runtime.pulse import NoPulse, PulseWriter
from primus_hydra.runtime.signals import StopRequest

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class AgreedStop:
    """The `StopSignal` of a rank; `stopped_at` is the agreed step, None while there is none."""

    def __init__(self, request: StopRequest, world_size: int, pulse: PulseWriter | None = None) -> None:
        self._request = request
        self._pulse = pulse or NoPulse()
        self._world_size = world_size
        self._group: ProcessGroup | None = None
        self.stopped_at: int | None = None

    def agreed(self, step: int) -> bool:
        """Whether all ranks stop after `step`; collective. One process needs no communication."""
        self._pulse.beat(step)
        if self.stopped_at is None and self._any_rank(self._request.requested):
            self.stopped_at = step
        return self.stopped_at is not None

    def barrier(self) -> None:
        """Wait until every rank is here; collective."""
        self._any_rank(False)

    def _any_rank(self, mine: bool) -> bool:
        if self._world_size == 1:
            return mine
        import torch
        import torch.distributed as dist

        # The backend's own groups may be NCCL: there a flag would wait for the device. gloo works on the host.
        if self._group is None:
            self._group = cast("ProcessGroup", dist.new_group(backend="gloo", group_desc="primus_stop"))
        flag = torch.tensor([int(mine)], dtype=torch.int32)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self._group)
        return bool(flag.item())
