"""Every rank begins with the same random generators, whatever its process did before."""

from __future__ import annotations

import random

import numpy as np

from primus_hydra.runtime.generators import seed_generators


def test_the_seed_alone_decides_what_is_drawn() -> None:
    drawn = []
    for seed in (7, 7, 8):
        random.random()
        np.random.random()
        seed_generators(seed)
        drawn.append((random.random(), np.random.random()))
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_seed_that_numpy_does_not_take_is_cut_for_it() -> None:
    seed_generators(2**32 + 7)
    assert np.random.random() == np.random.RandomState(7).random()
