"""What all ranks must know of each other around a save: how much each holds, whether it is written, who failed and why.

Uses a gloo group of its own: the training's groups may be NCCL, where such a question would wait for the device. One
process needs no communication.
"""

from __future__ import annotations

from typing import Any, cast

import torch.distributed as dist


class Ranks:
    """All ranks of the job."""

    def __init__(self) -> None:
        self._group: dist.ProcessGroup | None = None

    def gathered(self, mine: Any) -> list[Any]:
        """Return what each rank gave, in their order; picklable objects. Collective."""
        if dist.get_world_size() == 1:
            return [mine]
        if self._group is None:
            self._group = cast("dist.ProcessGroup", dist.new_group(backend="gloo", group_desc="primus_checkpoints"))
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine, group=self._group)
        return everyone
