"""Rectangles of Hugging Face tensors, of which a backend's own tensors are stacked. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from primus_hydra.weights.tensors import Shape

Range = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A rectangle of a Hugging Face tensor: rows and columns as [first, last + 1); a vector has no columns."""

    tensor: str
    rows: Range
    columns: Range | None

    @property
    def shape(self) -> Shape:
        """Shape of the rectangle."""
        height = self.rows[1] - self.rows[0]
        return (height,) if self.columns is None else (height, self.columns[1] - self.columns[0])

    @property
    def where(self) -> tuple[slice, ...]:
        """The rectangle as an index into the tensor."""
        return tuple(slice(*extent) for extent in (self.rows, self.columns) if extent is not None)


def whole_of(tensor: str, expected: Mapping[str, Shape]) -> Piece:
    """Return a tensor as one piece."""
    return rows_of(tensor, expected, (0, expected[tensor][0]))


def rows_of(tensor: str, expected: Mapping[str, Shape], rows: Range) -> Piece:
    """Return some rows of a tensor in their whole width."""
    shape = expected[tensor]
    return Piece(tensor=tensor, rows=rows, columns=None if len(shape) == 1 else (0, shape[1]))
