"""The final weights as a folder that `transformers` loads, by torchtitan's own conversion of names and shapes.

A family whose config.json we do not know gets its tensors alone, and the log says so.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Final

import torch.distributed

from primus_hydra.backends.torchtitan.checkpointer import LedgerCheckpointManager
from primus_hydra.config.schema import JobConfig
from primus_hydra.runtime.contracts import RankContext
from primus_hydra.weights.export import FilePlan, finish_export, partial_folder, plan_export, start_export
from primus_hydra.weights.folder import INDEX_FILE
from primus_hydra.weights.tensors import unknown_form

_PIECES: Final = "sharded"
"""Where torch's writer leaves each rank's pieces, from which it puts the files together."""
_log = logging.getLogger(__name__)


def export_hf(checkpointer: LedgerCheckpointManager, job: JobConfig, context: RankContext) -> None:
    """Write the weights and what belongs to them into the run's export folder; collective."""
    folder, vocab_size = context.paths.export, job.model.vocab_size or context.data.vocab_size
    unknown = unknown_form(job.model)
    plan = None if unknown else plan_export(job.model, vocab_size, job.checkpoint.export_dtype)
    if context.is_main:
        start_export(folder)
    torch.distributed.barrier()
    checkpointer.export_weights(partial_folder(folder), None if plan is None else numbers(plan))
    torch.distributed.barrier()
    if not context.is_main:
        return
    shutil.rmtree(partial_folder(folder) / _PIECES, ignore_errors=True)
    if plan is None:
        _log.warning("only the tensors are exported: %s", unknown)
        shutil.rmtree(folder, ignore_errors=True)
        partial_folder(folder).rename(folder)
        return
    name_as_planned(partial_folder(folder), plan)
    finish_export(
        folder,
        plan,
        model=job.model,
        vocab_size=vocab_size,
        dtype=job.checkpoint.export_dtype,
        tokenizer_dir=context.data.tokenizer_dir,
    )


def numbers(plan: FilePlan) -> dict[str, int]:
    """Return the number of each tensor's file, from 1."""
    return {name: number for number, names in enumerate(plan.files.values(), 1) for name in names}


def name_as_planned(folder: Path, plan: FilePlan) -> None:
    """Give the files their planned names: torch numbers even a single one and indexes it."""
    for number, name in enumerate(plan.files, 1):
        (folder / f"model-{number:05}-of-{len(plan.files):05}.safetensors").rename(folder / name)
    (folder / INDEX_FILE).unlink()
