"""This rank's parameters and the pieces of Hugging Face tensors that they are stacked from.

Refuses a model with a parameter that no Hugging Face tensor stands for, and settings under which the same numbers mean
something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core import parallel_state

from primus_hydra.backends.megatron.hf_pieces import Part, Piece, pieces_of, stacked_shape
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.errors import Problem, raise_all
from primus_hydra.weights.tensors import Shape, expected_tensors


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A parameter of this rank, by its own name, and the pieces that it is stacked from, top first."""

    name: str
    parameter: torch.nn.Parameter
    pieces: tuple[Piece, ...]

    def placed(self) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield each piece with its rows of the parameter, as a view."""
        first = 0
        for piece in self.pieces:
            height = piece.shape[0]
            yield piece, self.parameter.data[first : first + height]
            first += height


def holdings(chunks: Sequence[Any], model: ModelConfig, vocab_size: int) -> list[Holding]:
    """Return every parameter of this rank's chunks, wrapped or not, with its pieces.

    Raises UserError with all parameters that no Hugging Face tensor stands for or whose shape is another one, and with
    the settings that would give the numbers another meaning.
    """
    expected = expected_tensors(model, vocab_size)
    part = Part(
        rank=parallel_state.get_tensor_model_parallel_rank(), size=parallel_state.get_tensor_model_parallel_world_size()
    )
    found, problems = [], []
    for chunk in map(bare, chunks):
        problems += list(_meaning_problems(chunk.config))
        for name, parameter in chunk.named_parameters():
            pieces = pieces_of(_global_name(chunk, name), model, expected, part)
            if stacked_shape(pieces) != tuple(parameter.shape):
                problems.append(_strange(name, tuple(parameter.shape)))
            found.append(Holding(name=name, parameter=parameter, pieces=pieces))
    raise_all(problems)
    return found


def bare(chunk: Any) -> Any:
    """Return the model inside its wrappers for data parallelism and number formats."""
    while not hasattr(chunk, "decoder") and hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def _global_name(chunk: Any, name: str) -> str:
    """Return a parameter's name with the layer counted over all stages and chunks, from 0."""
    if not name.startswith("decoder.layers."):
        return name
    _, _, number, rest = name.split(".", 3)
    return f"decoder.layers.{chunk.decoder.layers[int(number)].layer_number - 1}.{rest}"


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
