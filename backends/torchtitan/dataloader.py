"""torchtitan's data loader over our prepared samples, in an order that no parallel layout changes.

The samples of one optimizer step are the next `global_batch_size` positions of the order; each data-parallel rank takes
its microbatches out of them. So one rank and eight see the same global batch. The state is the number of samples that
all ranks together have consumed: one number, the same on every rank, so a checkpoint resumes with any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torchtitan.components.dataloader import BaseDataLoader

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.order import Order
from primus_hydra.data.prepare import open_order, open_samples
from primus_hydra.data.prepared import PreparedData
from primus_hydra.data.samples import Sample, Samples
from primus_hydra.data.split import SplitName

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class OrderedSamples:
    """A split of the data, and the order in which it is read over all epochs."""

    samples: Samples
    order: Order

    def at(self, position: int) -> Sample:
        """Return the sample at a position counted from the beginning of the run."""
        return self.samples.sample(self.order.index(position))


def open_ordered(prepared: PreparedData, job: JobConfig, split: SplitName) -> OrderedSamples:
    """Open a split as a rank reads it; raises HostError or UserError as `open_samples` does."""
    samples = open_samples(prepared, job, split)
    return OrderedSamples(samples=samples, order=open_order(samples, job, split))


class SampleDataLoader(BaseDataLoader):  # type: ignore[misc]
    """Yields this rank's microbatches for ever, or once through the split when `infinite` is false."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):  # type: ignore[misc]
        """`open_split` opens the split when the loader is built."""

        open_split: Callable[[], OrderedSamples]
        infinite: bool = True

    def __init__(self, config: Config, *, dp_world_size: int, dp_rank: int, local_batch_size: int, **_: object) -> None:
        self._split = config.open_split()
        self._limit = None if config.infinite else len(self._split.samples)
        self._batch_size = local_batch_size
        self._first = dp_rank * local_batch_size
        self._stride = dp_world_size * local_batch_size
        self.consumed_samples = 0

    def __iter__(self) -> Iterator[Batch]:
        while self._limit is None or self.consumed_samples + self._stride <= self._limit:
            first = self.consumed_samples + self._first
            samples = [self._split.at(position) for position in range(first, first + self._batch_size)]
            # Counted before the batch is handed out: a checkpoint is taken after the step that trained on it.
            self.consumed_samples += self._stride
            yield _collate(samples)

    def state_dict(self) -> dict[str, Any]:
        """Return the samples that all ranks together have consumed."""
        return {"consumed_samples": self.consumed_samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after the samples that were consumed, whatever the number of ranks was."""
        self.consumed_samples = int(state_dict["consumed_samples"])


def _collate(samples: list[Sample]) -> Batch:
    inputs = torch.from_numpy(np.stack([sample.inputs for sample in samples]))
    labels = torch.from_numpy(np.stack([sample.labels for sample in samples]))
    # torchtitan keeps attention inside the stretches between which positions start again.
    positions = torch.from_numpy(np.stack([sample.positions for sample in samples]))
    return {"input": inputs, "positions": positions}, labels
