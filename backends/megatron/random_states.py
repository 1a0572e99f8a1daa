"""The states of a rank's random generators, kept in checkpoints so that dropout goes on as if nothing had stopped."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker


def capture(device: torch.device) -> dict[str, Any]:
    """Return the states of Python, numpy, torch, the device and Megatron's named streams: plain data and tensors."""
    version, words, gauss = random.getstate()
    kind, keys, *rest = cast("tuple[str, np.ndarray, int, int, float]", np.random.get_state(legacy=True))
    return {
        "python": [version, torch.tensor(words), gauss],
        "numpy": [str(kind), torch.tensor(keys.astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "streams": {name: state.clone() for name, state in get_cuda_rng_tracker().get_states().items()},
    }


def restore(states: dict[str, Any], device: torch.device) -> None:
    """Continue where `capture` was called, on the same layout of ranks."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["device"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(states["device"], device)
    get_cuda_rng_tracker().set_states(dict(states["streams"]))
