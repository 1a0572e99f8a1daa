"""The real backends with a trainer that trains nothing: it writes down the state that a rank begins in."""

import hashlib
import json
import os
import pickle
import random
from pathlib import Path

from primus_hydra.backends.megatron.adapter import MegatronAdapter
from primus_hydra.backends.torchtitan.adapter import TorchTitanAdapter
from primus_hydra.runtime.contracts import BaseTrainer


class _Probed:
    def convert_config(self, context):
        return None

    def load_trainer_class(self, stage):
        super().load_trainer_class(stage)  # as a rank that trains: the server imports it
        return Probe


class ProbedTitan(_Probed, TorchTitanAdapter):
    pass


class ProbedMegatron(_Probed, MegatronAdapter):
    pass


class Probe(BaseTrainer):
    def setup(self):
        self._state = _state()

    def init(self):
        self._state["threads_used"] = _threads_of_a_sum()

    def train(self):
        path = Path(os.environ["PRIMUS_RUN_DIR"]) / f"state-{self.context.rank}.json"
        path.write_text(json.dumps(self._state))

    def cleanup(self, on_error=False):
        pass

    @property
    def step(self):
        return 0


def _state():
    import numpy as np
    import torch

    # Before anything that could change it.
    cuda = {"initialized": torch.cuda.is_initialized(), "bad_fork": torch._C._cuda_isInBadFork()}
    return {
        "environment": dict(os.environ),
        "random": {
            "python": _digest(random.getstate()),
            "numpy": _digest(np.random.get_state()),
            "torch": _digest(torch.get_rng_state().tolist()),
        },
        "cuda": cuda,
        "threads_asked": torch.get_num_threads(),
        "parent": os.getppid(),
        "parent_threads": _threads(os.getppid()),
    }


def _threads_of_a_sum():
    """Return how many threads torch works in, this one counted."""
    import torch

    before = _threads(os.getpid())
    (torch.ones(4_000_000) + 1).sum()
    return 1 + _threads(os.getpid()) - before


def _threads(process):
    return len(list(Path(f"/proc/{process}/task").iterdir()))


def _digest(state):
    return hashlib.sha256(pickle.dumps(state)).hexdigest()
