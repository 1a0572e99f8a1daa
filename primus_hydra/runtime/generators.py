"""Random generators that a rank begins with: those of Python, numpy and torch, seeded before the backend builds.

Otherwise they would depend on how the rank came to be: a plain process takes the seeds of Python and numpy from the
system, and forked ranks inherit one state of numpy. Every rank begins alike; a backend that wants its ranks to differ
seeds them again, from the same seed.
"""

from __future__ import annotations

import random
import sys

_NUMPY_SEEDS = 2**32


def seed_generators(seed: int) -> None:
    """Seed the generators of this process; those of libraries that are not imported are left alone.

    torch seeds those of its devices with its own, when it first uses one.
    """
    random.seed(seed)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(seed % _NUMPY_SEEDS)
    if torch is not None:
        torch.manual_seed(seed)
