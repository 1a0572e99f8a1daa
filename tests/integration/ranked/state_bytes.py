"""Bytes of parameters, gradients and optimizer that a rank of a training really held: noted in the run directory."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

BEFORE = "tests.integration.ranked.state_bytes:note"


def note(rank: int) -> None:
    """Note the sizes when a training ends, before anything is released; called in a rank before its training."""
    for backend, measure in (("torchtitan", _titan), ("megatron", _megatron)):
        try:
            trainer = importlib.import_module(f"primus_hydra.backends.{backend}.trainer").PretrainTrainer
        except ImportError:
            continue
        _wrap(trainer, measure, rank)


def held(run: Path, rank: int) -> dict[str, int]:
    """Return what a rank of a run held."""
    return {name: int(size) for name, size in json.loads((run / f"state-{rank}.json").read_text()).items()}


def _wrap(trainer: Any, measure: Any, rank: int) -> None:
    cleanup = trainer.cleanup

    def noting(self: Any, on_error: bool = False) -> None:
        if not on_error:
            file = self.context.paths.root / f"state-{rank}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(measure(self)))
        cleanup(self, on_error)

    trainer.cleanup = noting


def _titan(trainer: Any) -> dict[str, int]:
    parameters = [parameter for part in trainer.trainer.model_parts for parameter in part.parameters()]
    states = [state for optimizer in trainer.trainer.optimizers for state in optimizer.state.values()]
    return {
        "weights": _bytes(parameters),
        "gradients": _bytes(parameter.grad for parameter in parameters),
        "optimizer": _bytes(_tensors(states)),
    }


def _megatron(trainer: Any) -> dict[str, int]:
    chunks, optimizer = trainer.parts.chunks, trainer.parts.optimizer
    buffers = [buffer for chunk in chunks for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers)]
    parameters = [parameter for chunk in chunks for parameter in chunk.parameters()]
    packed = [buffer.param_data for buffer in buffers if buffer.param_data is not None]
    parts = getattr(optimizer, "chained_optimizers", [optimizer])
    state = list(_tensors([entry for part in parts for entry in part.optimizer.state.values()]))
    lent = {parameter.untyped_storage().data_ptr() for parameter in [*parameters, *packed]}
    groups = [main for part in parts for group in part.optimizer.param_groups for main in group["params"]]
    mains = [main for main in groups if main.untyped_storage().data_ptr() not in lent]
    return {
        "weights": _bytes(packed or parameters),
        "gradients": _bytes(buffer.grad_data for buffer in buffers),
        "optimizer": _bytes([*state, *mains]),
    }


def _tensors(states: Iterable[Any]) -> Iterator[Any]:
    yield from (value for state in states for value in state.values() if hasattr(value, "untyped_storage"))


def _bytes(tensors: Iterable[Any]) -> int:
    local = (getattr(tensor, "_local_tensor", tensor) for tensor in tensors)
    return sum(tensor.numel() * tensor.element_size() for tensor in local)
