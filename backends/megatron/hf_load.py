"""Weights of a Hugging Face folder into this rank's part of a Megatron model, piece by piece from the files.

A rank reads only the rows and columns that it holds. Strict: every parameter is filled, and all ranks together use
every tensor of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from safetensors import safe_open

from primus_hydra.backends.megatron.hf_names import holdings
from primus_hydra.config.schema import JobConfig
from primus_hydra.weights.check import open_hf
from primus_hydra.weights.folder import HfFolder
from primus_hydra.weights.tensors import expected_tensors


@torch.no_grad()
def load_hf(chunks: Sequence[Any], folder: Path, job: JobConfig, vocab_size: int) -> None:
    """Fill the parameters of `chunks` (wrapped or not) from `folder`; collective over all ranks.

    Numbers are converted to the parameters' own format. Where an optimizer keeps copies of the parameters, it must
    be built afterwards or told to take them again. Raises UserError for a folder of another model and for parameters
    that no folder can fill.
    """
    found = open_hf(folder, job, vocab_size)
    used: set[str] = set()
    with ExitStack() as stack:
        files: dict[Path, Any] = {}
        for holding in holdings(chunks, job.model, vocab_size):
            for piece, target in holding.placed():
                source = _open(found, piece.tensor, files, stack).get_slice(piece.tensor)
                target.copy_(source[piece.where])
                used.add(piece.tensor)
    _require_all_used(used, set(expected_tensors(job.model, vocab_size)))


def _open(found: HfFolder, tensor: str, files: dict[Path, Any], stack: ExitStack) -> Any:
    """Return the open file of a tensor; files are mapped into memory, so an open one costs next to nothing."""
    file = found.tensors[tensor].file
    if file not in files:
        files[file] = stack.enter_context(safe_open(str(file), framework="pt"))
    return files[file]


def _require_all_used(used: set[str], expected: set[str]) -> None:
    """Raise RuntimeError if a tensor of the model reached no rank."""
    everyone: list[set[str]] = [set() for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather_object(everyone, used)
    unused = expected.difference(*everyone)
    if unused:
        raise RuntimeError(f"no rank has a parameter for {', '.join(sorted(unused)[:3])} ({len(unused)} tensors)")
