"""Whether a converted model computes what it did: logits of `transformers` and of the backend for the same tokens."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import psutil
import torch

from primus_hydra.convert.contract import NativeFormat
from primus_hydra.run.space import GIB
from primus_hydra.weights.request import Verified

TOLERANCE: Final = 2e-4
"""Of the logits' standard deviation: float32 sums in another order leave about 1e-6 of it in a small model."""
_BATCH: Final = (2, 16)
_MEMORY_SHARE: Final = 0.5


def memory_problem(parameters: int) -> str | None:
    """Say why the two models do not fit into half of the memory that is free, or return None."""
    needed, free = 2 * 4 * parameters, int(psutil.virtual_memory().available * _MEMORY_SHARE)
    if needed <= free:
        return None
    takes = f"two models in float32 take {needed / GIB:.1f} GiB, and half of the free memory is {free / GIB:.1f} GiB"
    return f"logits were not compared: {takes}"


def compare_logits(native: NativeFormat, *, hf: Path, checkpoint: Path, vocab_size: int) -> Verified:
    """Run both models in float32 over a few random tokens; raises RuntimeError if they disagree."""
    tokens = torch.randint(vocab_size, _BATCH, generator=torch.Generator().manual_seed(0))
    expected = _published(hf, tokens)
    found = native.logits(checkpoint, tokens, vocab_size)[..., :vocab_size]
    off, spread = float((found - expected).abs().max()), float(expected.std())
    if not off <= TOLERANCE * spread:
        what = f"the logits of transformers and {native.backend} differ by {off:.3g}, their spread is {spread:.3g}"
        raise RuntimeError(f"{what}; the weights were read back as they were written, so the models differ")
    digest = hashlib.blake2b(expected.numpy().tobytes(), digest_size=8).hexdigest()
    return Verified(logits_off=off, logits_spread=spread, logits_hash=digest)


@torch.no_grad()
def _published(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    from transformers import AutoModelForCausalLM  # slow to import, and only here

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    model, report = loaded
    if report["missing_keys"] or report["mismatched_keys"]:
        raise RuntimeError(f"transformers misses weights in the folder: {report}")
    logits: torch.Tensor = model.eval()(tokens).logits
    return logits.float()
