"""The order of samples over a run, and the part of a global batch that one data-parallel rank reads.

The state is one number, the samples consumed so far. The global batch of a step holds the same samples in the same
order whatever the number of data-parallel ranks and microbatches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from primus_hydra.config.layout import Layout


class Order(Protocol):
    """Which sample stands at a position of the run, counted over all epochs from 0."""

    def index(self, position: int) -> int:
        """Return the sample at a global position."""

    def indices(self, positions: Iterable[int]) -> list[int]:
        """Return the samples at several positions."""


class SampleOrder:
    """Maps a global position, counted over all epochs from 0, to the index of a sample."""

    def __init__(self, samples_per_epoch: int, *, seed: int, kind: Literal["shuffled", "sequential"]) -> None:
        """Raises ValueError for an epoch without samples."""
        if samples_per_epoch < 1:
            raise ValueError("an epoch needs at least one sample")
        self._length = samples_per_epoch
        self._seed = seed
        self._kind = kind
        self._epoch = -1
        self._permutation: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def index(self, position: int) -> int:
        """Return the sample at a global position; every sample comes once per epoch."""
        epoch, within = divmod(position, self._length)
        return within if self._kind == "sequential" else int(self._shuffled(epoch)[within])

    def indices(self, positions: Iterable[int]) -> list[int]:
        """Return the samples at several positions."""
        return [self.index(position) for position in positions]

    def _shuffled(self, epoch: int) -> npt.NDArray[np.int64]:
        if epoch != self._epoch:
            # Sorting raw words, not Generator.permutation: numpy promises a stable stream only for bit generators.
            words = np.random.PCG64(np.random.SeedSequence([self._seed, epoch])).random_raw(self._length)
            self._permutation = np.argsort(np.asarray(words), kind="stable")
            self._epoch = epoch
        return self._permutation


def batch_positions(layout: Layout, *, consumed_samples: int, dp_rank: int, microbatch: int) -> range:
    """Return the global positions that `dp_rank` reads in one microbatch of the next optimizer step.

    `consumed_samples` is step times global batch size; `microbatch` counts from 0 to `layout.microbatches` - 1.
    """
    row = microbatch * layout.dp + dp_rank
    first = consumed_samples + row * layout.micro_batch_size
    return range(first, first + layout.micro_batch_size)


def batch_indices(order: Order, layout: Layout, *, consumed_samples: int, dp_rank: int, microbatch: int) -> list[int]:
    """Return the sample indices that `dp_rank` reads in one microbatch of the next optimizer step."""
    return order.indices(
        batch_positions(layout, consumed_samples=consumed_samples, dp_rank=dp_rank, microbatch=microbatch)
    )
