"""A blend draws from each set by its weight, and each set gives its own samples in its own order."""

from collections import Counter

import numpy as np
import pytest

from primus_hydra.data import blended
from primus_hydra.data.blended import BlendedSamples, BlendOrder, deal, shares
from primus_hydra.data.order import SampleOrder
from primus_hydra.data.samples import Sample


class Numbered:
    """Samples that hold the number of their set and their own."""

    def __init__(self, number: int, size: int) -> None:
        self._number, self._size = number, size

    def __len__(self) -> int:
        return self._size

    def sample(self, index: int) -> Sample:
        one = np.array([self._number, index])
        return Sample(inputs=one, labels=one, positions=one)


def drawn(samples, order, positions):
    return [tuple(samples.sample(order.index(position)).inputs.tolist()) for position in positions]


def test_every_stretch_of_a_run_holds_the_sets_by_weight():
    samples = BlendedSamples([Numbered(0, 50), Numbered(1, 7), Numbered(2, 500)], [0.7, 0.2, 0.1])
    order = BlendOrder(samples, seed=1, kind="shuffled")

    for first in (0, 999, 65_500, 10**9):
        counts = Counter(number for number, _ in drawn(samples, order, range(first, first + 1000)))
        assert [round(counts[number] / 1000, 2) for number in range(3)] == [0.7, 0.2, 0.1]


@pytest.mark.parametrize("kind", ["shuffled", "sequential"])
def test_each_set_is_read_in_its_own_order_epoch_after_epoch_and_block_after_block(kind, monkeypatch):
    monkeypatch.setattr(blended, "_BLOCK", 64)
    samples = BlendedSamples([Numbered(0, 30), Numbered(1, 11)], [3.0, 1.0])
    order = BlendOrder(samples, seed=5, kind=kind)

    for number, size in ((0, 30), (1, 11)):
        alone = SampleOrder(size, seed=5 + number * 1_000_003, kind=kind)
        mine = [own for set_, own in drawn(samples, order, range(300)) if set_ == number]
        assert mine == [alone.index(place) for place in range(len(mine))]
        assert len(mine) > 2 * size


def test_shares_are_whole_and_no_set_is_forgotten():
    assert shares([1, 1, 1], 10) == [4, 3, 3]
    assert sum(shares([1e-9, 0.5, 0.5], 65_536)) == 65_536
    assert min(shares([1e-9, 0.5, 0.5], 65_536)) == 1


def test_turns_are_spread_evenly():
    turns, draws = deal([4, 2])

    assert turns.tolist() == [0, 1, 0, 0, 1, 0]
    assert draws.tolist() == [0, 0, 1, 2, 1, 3]


def test_a_sample_outside_the_sets_is_an_error():
    samples = BlendedSamples([Numbered(0, 3), Numbered(1, 2)], [1, 1])

    assert len(samples) == 5
    for index in (-1, 5):
        with pytest.raises(IndexError):
            samples.sample(index)
