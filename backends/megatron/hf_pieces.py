"""Where the numbers of a Megatron parameter lie in the tensors of a Hugging Face model, for any tensor parallel rank.

Megatron keeps queries, keys and values in one matrix, group by group ([R queries, key, value] for each key head, R
query heads to a key head), and gate and up projection in one, a tensor parallel rank's part of each one after the
other. A parameter is therefore a stack of pieces, each a rectangle of one Hugging Face tensor. Loading reads the
pieces, exporting writes them back: one description serves both. Imports neither torch nor Megatron.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.weights.tensors import EMBEDDING, FINAL_NORM, OUTPUT, Shape

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


@dataclass(frozen=True, kw_only=True)
class Part:
    """A tensor parallel rank among `size`."""

    rank: int
    size: int

    def of(self, extent: int) -> Range:
        """Return this rank's equal share of `extent` rows or columns."""
        share = extent // self.size
        return self.rank * share, (self.rank + 1) * share


def pieces_of(name: str, model: ModelConfig, expected: dict[str, Shape], part: Part) -> tuple[Piece, ...]:
    """Return the pieces of the parameter `name`, whose layer number counts over the whole model; () if unknown.

    `expected` gives the shapes of the Hugging Face tensors, `part` the tensor parallel rank.
    """
    if name == "embedding.word_embeddings.weight":
        return (_rows(EMBEDDING, expected, part),)
    if name == "output_layer.weight":
        return (_rows(EMBEDDING if model.tie_word_embeddings else OUTPUT, expected, part),)
    if name == "decoder.final_layernorm.weight":
        return (_whole(FINAL_NORM, expected),)
    *head, number, rest = name.split(".", 3) if name.startswith("decoder.layers.") else ("", "", "")
    build = _LAYER.get(rest)
    return build(f"model.layers.{number}.", model, expected, part) if head and build else ()


def _whole(tensor: str, expected: dict[str, Shape]) -> Piece:
    shape = expected[tensor]
    return Piece(tensor=tensor, rows=(0, shape[0]), columns=None if len(shape) == 1 else (0, shape[1]))


def _rows(tensor: str, expected: dict[str, Shape], part: Part) -> Piece:
    height, width = expected[tensor]
    return Piece(tensor=tensor, rows=part.of(height), columns=(0, width))


def _columns(tensor: str, expected: dict[str, Shape], part: Part) -> Piece:
    height, width = expected[tensor]
    return Piece(tensor=tensor, rows=(0, height), columns=part.of(width))


_Build = Callable[[str, ModelConfig, dict[str, Shape], Part], tuple[Piece, ...]]


def _as_whole(tensor: str) -> _Build:
    return lambda prefix, model, expected, part: (
        (_whole(prefix + tensor, expected),) if prefix + tensor in expected else ()
    )


def _by_columns(tensor: str) -> _Build:
    return lambda prefix, model, expected, part: (_columns(prefix + tensor, expected, part),)


def _gate_and_up(prefix: str, model: ModelConfig, expected: dict[str, Shape], part: Part) -> tuple[Piece, ...]:
    return tuple(_rows(f"{prefix}mlp.{name}_proj.weight", expected, part) for name in ("gate", "up"))


def _packed_attention(prefix: str, model: ModelConfig, expected: dict[str, Shape], part: Part) -> tuple[Piece, ...]:
    """Cut this rank's rows out of the packed matrix of all groups; with more ranks than groups a group is cut too."""
    width = model.head_width
    queries = model.num_attention_heads // model.kv_heads * width
    first, last = part.of(model.kv_heads * (queries + 2 * width))
    pieces, top = [], 0
    for group in range(model.kv_heads):
        for name, height in (("q", queries), ("k", width), ("v", width)):
            begin, end = max(first, top) - top, min(last, top + height) - top
            if begin < end:
                rows = (group * height + begin, group * height + end)
                tensor = f"{prefix}self_attn.{name}_proj.weight"
                pieces.append(Piece(tensor=tensor, rows=rows, columns=(0, model.hidden_size)))
            top += height
    return tuple(pieces)


_LAYER: Final[dict[str, _Build]] = {
    "input_layernorm.weight": _as_whole("input_layernorm.weight"),
    "self_attention.linear_qkv.weight": _packed_attention,
    "self_attention.q_layernorm.weight": _as_whole("self_attn.q_norm.weight"),
    "self_attention.k_layernorm.weight": _as_whole("self_attn.k_norm.weight"),
    "self_attention.linear_proj.weight": _by_columns("self_attn.o_proj.weight"),
    "pre_mlp_layernorm.weight": _as_whole("post_attention_layernorm.weight"),
    "mlp.linear_fc1.weight": _gate_and_up,
    "mlp.linear_fc2.weight": _by_columns("mlp.down_proj.weight"),
    # Transformer Engine keeps a norm in the linear layer that follows it.
    "self_attention.linear_qkv.layer_norm_weight": _as_whole("input_layernorm.weight"),
    "mlp.linear_fc1.layer_norm_weight": _as_whole("post_attention_layernorm.weight"),
}
"""Parameters of a layer, by the name behind the layer's number."""


def stacked_shape(pieces: Sequence[Piece]) -> Shape | None:
    """Return the shape of the stack, or None if the pieces do not fit on each other."""
    if not pieces or len({piece.shape[1:] for piece in pieces}) != 1:
        return None
    return (sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:])
