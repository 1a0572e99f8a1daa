"""The weights of a Megatron model as a folder that `transformers` loads, put together on rank 0 tensor by tensor.

No GPU ever holds more than its own part and one tensor; rank 0's memory holds the tensors of one file. The numbers are
those that the model computes with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
import torch.distributed
from safetensors.torch import save_file

from primus_hydra.backends.megatron.hf_names import Holding, holdings
from primus_hydra.config.schema import JobConfig
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.weights.export import ExportDtype, FilePlan, finish_export, partial_folder, plan_export, start_export
from primus_hydra.weights.pieces import Piece
from primus_hydra.weights.tensors import Shape, expected_tensors, stays_float32

_Held: TypeAlias = dict[Piece, torch.Tensor]
_Routes: TypeAlias = dict[str, dict[Piece, int]]

_NAMES: Final[dict[torch.dtype, ExportDtype]] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


@torch.no_grad()
def export_hf(chunks: Sequence[Any], folder: Path, job: JobConfig, context: RankContext, dtype: torch.dtype) -> None:
    """Write the weights of `chunks` (wrapped or not) in the number format `dtype`; collective over all ranks.

    Every rank must hold its updated parameters; a distributed optimizer may leave that to the next forward. The folder
    gets its name when everything is in it. Raises KeyError for a family without a known Hugging Face form, UserError
    for parameters that have no counterpart there.
    """
    vocab_size, name = job.model.vocab_size or context.data.vocab_size, _NAMES[dtype]
    plan = plan_export(job.model, vocab_size, name)
    holding = holdings(chunks, job.model, vocab_size)
    held = {piece: part for each in holding for piece, part in each.placed()}
    if context.is_main:
        start_export(folder)
    shapes = expected_tensors(job.model, vocab_size)
    _write_tensors(partial_folder(folder), plan, shapes, _Source(held=held, routes=_routes(holding)), dtype)
    if context.is_main:
        tokenizer = context.data.tokenizer_dir
        finish_export(folder, plan, model=job.model, vocab_size=vocab_size, dtype=name, tokenizer_dir=tokenizer)
    torch.distributed.barrier()


@dataclass(frozen=True, kw_only=True)
class _Source:
    """This rank's pieces, and which rank gives which piece of each tensor."""

    held: _Held
    routes: _Routes


def _write_tensors(folder: Path, plan: FilePlan, shapes: dict[str, Shape], source: _Source, dtype: torch.dtype) -> None:
    for file, names in plan.files.items():
        collected = {
            name: _collect(
                shapes[name],
                source.routes.get(name, {}),
                source.held,
                torch.float32 if stays_float32(name) else dtype,
            )
            for name in names
        }
        if torch.distributed.get_rank() == 0:
            save_file(collected, folder / file, metadata={"format": "pt"})


def _routes(holding: Sequence[Holding]) -> _Routes:
    """Return which rank gives which piece of each tensor; what several ranks hold, the first of them gives."""
    everyone: list[list[Piece]] = [[] for _ in range(torch.distributed.get_world_size())]
    # Data-parallel copies are equal: one of them is enough.
    mine = [piece for each in holding if not each.copied for piece in each.pieces]
    torch.distributed.all_gather_object(everyone, mine)
    routes: _Routes = {}
    for rank, pieces in enumerate(everyone):
        for piece in pieces:
            routes.setdefault(piece.tensor, {}).setdefault(piece, rank)
    return routes


def _collect(shape: Shape, routes: dict[Piece, int], held: _Held, dtype: torch.dtype) -> torch.Tensor:
    """Return one whole tensor on rank 0, in its main memory; on other ranks an empty one."""
    me = torch.distributed.get_rank()
    whole = torch.empty(shape if me == 0 else (0,), dtype=dtype)
    filled = 0
    for piece, owner in routes.items():
        filled += torch.Size(piece.shape).numel()
        if me == owner == 0:
            whole[piece.where] = held[piece].to(device="cpu", dtype=dtype)
        elif me == owner:
            torch.distributed.send(held[piece].to(dtype).contiguous(), dst=0)
        elif me == 0:
            whole[piece.where] = _receive(piece, owner, held, dtype)
    if filled != torch.Size(shape).numel():
        raise RuntimeError(f"the ranks hold {filled} numbers of a tensor {shape}")
    return whole


def _receive(piece: Piece, owner: int, held: _Held, dtype: torch.dtype) -> torch.Tensor:
    """Receive on the device that the ranks' own parameters are on, where their communication works."""
    device = next(iter(held.values())).device
    received = torch.empty(piece.shape, dtype=dtype, device=device)
    torch.distributed.recv(received, src=owner)
    return received.cpu()
