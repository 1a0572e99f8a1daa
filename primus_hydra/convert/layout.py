"""A backend's checkpoint as rectangles of Hugging Face tensors: what each of its tensors is stacked from.

Imports no torch: a layout is data that both directions of a conversion read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from primus_hydra.weights.pieces import Piece
from primus_hydra.weights.tensors import Shape


@dataclass(frozen=True, kw_only=True)
class StoredPart:
    """A rectangle of a backend's tensor `key`, at `offset` and of `shape`, and what it is stacked from, top first.

    Both have as many numbers as the tensor has dimensions. `pairs`: the rows of each of so many heads are kept in
    neighbouring pairs there, which Hugging Face keeps as two halves.
    """

    key: str
    offset: Shape
    shape: Shape
    pieces: tuple[Piece, ...]
    pairs: int | None = None

    @property
    def stacked(self) -> Shape:
        """Shape of the pieces on each other."""
        return (sum(piece.shape[0] for piece in self.pieces), *self.pieces[0].shape[1:])

    def __post_init__(self) -> None:
        if math.prod(self.stacked) != math.prod(self.shape) or len({piece.shape[1:] for piece in self.pieces}) != 1:
            raise ValueError(f"the pieces of {self.key} {self.offset} do not make up {self.shape}")


@dataclass(frozen=True, kw_only=True)
class NativeLayout:
    """Every part of a checkpoint's weights, and the whole shapes of its tensors.

    `objects` are entries without a Hugging Face counterpart that a loader insists on, as bytes.
    """

    parts: Sequence[StoredPart]
    shapes: Mapping[str, Shape]
    objects: Mapping[str, bytes] = field(default_factory=dict)
