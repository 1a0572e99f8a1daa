"""This rank's weights and the pieces of Hugging Face tensors that they are stacked from.

Weights are all parameters, and the bias by which a router balances its experts, which no gradient moves. Refuses a
model with a parameter that no Hugging Face tensor stands for, and settings under which the same numbers mean something
else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core import parallel_state

from primus_hydra.backends.megatron.hf_pieces import Part, pieces_of, stacked_shape
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.errors import Problem, raise_all
from primus_hydra.weights.pieces import Piece
from primus_hydra.weights.tensors import Shape, expected_tensors

_EXPERTS = ".mlp.experts."
_BALANCE = "mlp.router.expert_bias"
_WHOLE = Part(rank=0, size=1)
_NUMBERED = re.compile(r"(?<=local_experts\.)\d+|(?<=\.weight)\d+$")
"""The number of an expert among those of its rank, in either way of keeping them."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A weight of this rank, by its own name, and the pieces that it is stacked from, top first.

    `copied`: another data parallel rank has the same, and comes before this one.
    """

    name: str
    weight: torch.Tensor
    pieces: tuple[Piece, ...]
    copied: bool

    def placed(self) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield each piece with its rows of the weight, as a view."""
        first = 0
        for piece in self.pieces:
            height = piece.shape[0]
            yield piece, self.weight.data[first : first + height]
            first += height


def holdings(chunks: Sequence[Any], model: ModelConfig, vocab_size: int) -> list[Holding]:
    """Return every weight of this rank's chunks, wrapped or not, with its pieces.

    Raises UserError with all parameters that no Hugging Face tensor stands for or whose shape is another one, and with
    the settings that would give the numbers another meaning.
    """
    expected = expected_tensors(model, vocab_size)
    found, problems = [], []
    for chunk in map(bare, chunks):
        problems += list(_meaning_problems(chunk.config))
        for name, weight in named_weights(chunk):
            pieces = _pieces(_global_name(chunk, name, model), tuple(weight.shape), model, expected)
            if pieces is None:
                problems.append(_strange(name, tuple(weight.shape)))
            found.append(Holding(name=name, weight=weight, pieces=pieces or (), copied=_is_copy(name)))
    raise_all(problems)
    return found


def named_weights(chunk: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield everything of a bare chunk that a Hugging Face model has too, by the chunk's own names."""
    yield from chunk.named_parameters()
    yield from ((name, buffer) for name, buffer in chunk.named_buffers() if name.endswith(_BALANCE))


def _pieces(name: str, shape: Shape, model: ModelConfig, expected: dict[str, Shape]) -> tuple[Piece, ...] | None:
    """Return the pieces that have a weight's shape, or None: some matrices are cut in one kind of layers only."""
    for part in (_part(name), _WHOLE):
        pieces = pieces_of(name, model, expected, part)
        if stacked_shape(pieces) == shape:
            return pieces
    return None


def _part(name: str) -> Part:
    """Return which part of a weight that ranks cut is ours."""
    state = parallel_state
    if _EXPERTS in name:
        return Part(rank=state.get_expert_tensor_parallel_rank(), size=state.get_expert_tensor_parallel_world_size())
    return Part(rank=state.get_tensor_model_parallel_rank(), size=state.get_tensor_model_parallel_world_size())


def _is_copy(name: str) -> bool:
    if _EXPERTS in name:
        return bool(parallel_state.get_expert_data_parallel_rank())
    return bool(parallel_state.get_data_parallel_rank(with_context_parallel=True))


def bare(chunk: Any) -> Any:
    """Return the model inside its wrappers for data parallelism and number formats."""
    while not hasattr(chunk, "decoder") and hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def _global_name(chunk: Any, name: str, model: ModelConfig) -> str:
    """Return a weight's name with layers counted over all stages and chunks, and experts over all ranks, from 0."""
    if not name.startswith("decoder.layers."):
        return name
    _, _, number, rest = name.split(".", 3)
    whole = f"decoder.layers.{chunk.decoder.layers[int(number)].layer_number - 1}.{rest}"
    if _EXPERTS not in name:
        return whole
    experts = (model.n_routed_experts or 0) // parallel_state.get_expert_model_parallel_world_size()
    first = parallel_state.get_expert_model_parallel_rank() * experts
    return _NUMBERED.sub(lambda found: str(first + int(found[0])), whole)


def _meaning_problems(config: Any) -> Iterator[Problem]:
    for name in ("layernorm_zero_centered_gamma", "rotary_interleaved"):
        if getattr(config, name, False):
            yield Problem(
                key=f"backend.config.transformer.{name}",
                what="gives the weights another meaning than they have in Hugging Face's models",
                hint="leave it out when weights are read from or written to Hugging Face's format",
            )


def _strange(name: str, shape: Shape) -> Problem:
    return Problem(
        key="backend.config",
        what=f"the parameter {name} {shape} has no counterpart in the Hugging Face model",
        hint="leave out the native key that adds or changes it",
    )
