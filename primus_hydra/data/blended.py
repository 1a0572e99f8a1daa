"""Samples of several sets as those of one, drawn from the sets in turn by weight and without chance.

The positions of a run are dealt in blocks of 65536: of each block every set gets its share, spread evenly, and draws
its own samples in its own order, epoch after epoch. So the set and the draw of any position are found without looking
at those before it, and the state of a run stays one number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from primus_hydra.data.order import SampleOrder
from primus_hydra.data.samples import Sample, Samples

_BLOCK: Final = 1 << 16
_SEED_STEP: Final = 1_000_003
SMALLEST_WEIGHT: Final = 1 / _BLOCK


class BlendedSamples:
    """The samples of several sets, one set after the other, and the weight of each set."""

    def __init__(self, sets: Sequence[Samples], weights: Sequence[float]) -> None:
        self._sets = sets
        self.weights = weights
        self.sizes = tuple(len(one) for one in sets)
        self.firsts = tuple(int(first) for first in np.cumsum([0, *self.sizes])[:-1])

    def __len__(self) -> int:
        """Samples of all sets."""
        return sum(self.sizes)

    def sample(self, index: int) -> Sample:
        """Return sample `index` (from 0); raises IndexError outside the sets."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        number = self.set_of(index)
        return self._sets[number].sample(index - self.firsts[number])

    def set_of(self, index: int) -> int:
        """Return the set that a sample is of."""
        return bisect_right(self.firsts, index) - 1


class BlendOrder:
    """Maps a position of the run to a sample; each set is read in an order of its own."""

    def __init__(self, samples: BlendedSamples, *, seed: int, kind: Literal["shuffled", "sequential"]) -> None:
        self._firsts = samples.firsts
        # Sets of one size must not be shuffled alike; the first is as it would be alone.
        seeds = [seed + number * _SEED_STEP for number in range(len(samples.sizes))]
        self._orders = [SampleOrder(size, seed=own, kind=kind) for size, own in zip(samples.sizes, seeds, strict=True)]
        self._shares = shares(samples.weights, _BLOCK)
        self._turns, self._draws = deal(self._shares)

    def index(self, position: int) -> int:
        """Return the sample at a global position."""
        block, within = divmod(position, _BLOCK)
        number = int(self._turns[within])
        draw = block * self._shares[number] + int(self._draws[within])
        return self._firsts[number] + self._orders[number].index(draw)

    def indices(self, positions: Iterable[int]) -> list[int]:
        """Return the samples at several positions."""
        return [self.index(position) for position in positions]


def shares(weights: Sequence[float], block: int) -> list[int]:
    """Divide a block by weight: whole numbers, at least 1, by largest remainder."""
    exact = np.asarray(weights, dtype=np.float64) / sum(weights) * block
    parts = np.maximum(np.floor(exact).astype(np.int64), 1)
    for number in np.argsort(parts - exact, kind="stable")[: max(0, block - int(parts.sum()))]:
        parts[number] += 1
    parts[int(np.argmax(parts))] -= int(parts.sum()) - block
    return [int(part) for part in parts]


def deal(parts: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the set whose turn it is at each place of a block, and how often it had its turn in the block before."""
    due = np.concatenate([(np.arange(part) + 0.5) / part for part in parts])
    turns = np.repeat(np.arange(len(parts)), parts)
    draws = np.concatenate([np.arange(part) for part in parts])
    by_time = np.argsort(due, kind="stable")
    return turns[by_time], draws[by_time]
