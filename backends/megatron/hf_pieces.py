"""Where the numbers of a Megatron parameter lie in the tensors of a Hugging Face model, for any tensor parallel rank.

Megatron keeps queries, keys and values in one matrix, group by group ([R queries, key, value] for each key head, R
query heads to a key head), and gate and up projection in one, a tensor parallel rank's part of each one after the
other. A parameter is therefore a stack of pieces, each a rectangle of one Hugging Face tensor. Loading reads the
pieces, exporting writes them back: one description serves both, for runs and for conversions. Imports neither torch
nor Megatron.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from primus_hydra.config.families import LATENT
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.weights.pieces import Piece, Range, rows_of, whole_of
from primus_hydra.weights.tensors import EMBEDDING, FINAL_NORM, OUTPUT, ROUTER_BIAS, Shape, expert_names


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

    `expected` gives the shapes of the Hugging Face tensors, `part` the rank among those that cut the parameter: the
    tensor parallel ones, for an expert the expert tensor parallel ones. An expert's number counts over all ranks.
    """
    if name == "embedding.word_embeddings.weight":
        return (_rows(EMBEDDING, expected, part),)
    if name == "output_layer.weight":
        return (_rows(EMBEDDING if model.tie_word_embeddings else OUTPUT, expected, part),)
    if name == "decoder.final_layernorm.weight":
        return (_whole(FINAL_NORM, expected),)
    if not name.startswith("decoder.layers."):
        return ()
    _, _, number, rest = name.split(".", 3)
    prefix = f"model.layers.{number}."
    if rest.startswith("mlp.experts."):
        return _expert(rest, prefix, model, expected, part)
    build = (_LATENT_NAMES.get(rest) if model.architecture in LATENT else None) or _LAYER.get(rest)
    return build(prefix, model, expected, part) if build else ()


def _whole(tensor: str, expected: dict[str, Shape]) -> Piece:
    return whole_of(tensor, expected)


def _rows(tensor: str, expected: dict[str, Shape], part: Part) -> Piece:
    return rows_of(tensor, expected, part.of(expected[tensor][0]))


def _columns(tensor: str, expected: dict[str, Shape], part: Part) -> Piece:
    height, width = expected[tensor]
    return Piece(tensor=tensor, rows=(0, height), columns=part.of(width))


_Build = Callable[[str, ModelConfig, dict[str, Shape], Part], tuple[Piece, ...]]
"""Takes a layer's prefix, the model, the shapes and the rank's part."""


def _as_whole(tensor: str) -> _Build:
    return lambda prefix, model, expected, part: (
        (_whole(prefix + tensor, expected),) if prefix + tensor in expected else ()
    )


def _by_rows(tensor: str) -> _Build:
    return lambda prefix, model, expected, part: (
        (_rows(prefix + tensor, expected, part),) if prefix + tensor in expected else ()
    )


def _by_columns(tensor: str) -> _Build:
    return lambda prefix, model, expected, part: (_columns(prefix + tensor, expected, part),)


def _gate_and_up(within: str) -> _Build:
    return lambda prefix, model, expected, part: tuple(
        _rows(f"{prefix}{within}.{name}_proj.weight", expected, part) for name in ("gate", "up")
    )


def _router(prefix: str, model: ModelConfig, expected: dict[str, Shape], part: Part) -> tuple[Piece, ...]:
    return (_whole(prefix + expert_names(model).router, expected),)


def _expert(rest: str, prefix: str, model: ModelConfig, expected: dict[str, Shape], part: Part) -> tuple[Piece, ...]:
    """Return the pieces of an expert's matrix, in the names of a list of experts or of all of them in one module."""
    found = _EXPERT.fullmatch(rest)
    if found is None:
        return ()
    names, expert = expert_names(model), int(found["listed"] or found["grouped"])
    if found["matrix"] == "linear_fc2":
        return (_columns(prefix + names.matrix(expert, "down"), expected, part),)
    return tuple(_rows(prefix + names.matrix(expert, which), expected, part) for which in ("gate", "up"))


def _packed_attention(kind: str) -> _Build:
    """Cut this rank's rows out of the packed matrix of all groups; with more ranks than groups a group is cut too."""

    def build(prefix: str, model: ModelConfig, expected: dict[str, Shape], part: Part) -> tuple[Piece, ...]:
        width = model.head_width
        queries = model.num_attention_heads // model.kv_heads * width
        first, last = part.of(model.kv_heads * (queries + 2 * width))
        pieces, top = [], 0
        for group in range(model.kv_heads):
            for name, height in (("q", queries), ("k", width), ("v", width)):
                begin, end = max(first, top) - top, min(last, top + height) - top
                tensor = f"{prefix}self_attn.{name}_proj.{kind}"
                if tensor not in expected:
                    return ()
                if begin < end:
                    pieces.append(rows_of(tensor, expected, (group * height + begin, group * height + end)))
                top += height
        return tuple(pieces)

    return build


_EXPERT: Final = re.compile(
    r"mlp\.experts\.(?:local_experts\.(?P<listed>\d+)\.)?(?P<matrix>linear_fc[12])\.weight(?P<grouped>\d*)"
)
"""Megatron's list of experts, one after the other, and Transformer Engine's module of all of them."""
_LAYER: Final[dict[str, _Build]] = {
    "input_layernorm.weight": _as_whole("input_layernorm.weight"),
    "self_attention.linear_qkv.weight": _packed_attention("weight"),
    "self_attention.linear_qkv.bias": _packed_attention("bias"),
    "self_attention.q_layernorm.weight": _as_whole("self_attn.q_norm.weight"),
    "self_attention.k_layernorm.weight": _as_whole("self_attn.k_norm.weight"),
    "self_attention.linear_proj.weight": _by_columns("self_attn.o_proj.weight"),
    "self_attention.linear_q_proj.weight": _by_rows("self_attn.q_proj.weight"),
    "self_attention.linear_q_down_proj.weight": _by_rows("self_attn.q_a_proj.weight"),
    "self_attention.linear_q_up_proj.weight": _by_rows("self_attn.q_b_proj.weight"),
    "self_attention.linear_kv_down_proj.weight": _by_rows("self_attn.kv_a_proj_with_mqa.weight"),
    "self_attention.kv_layernorm.weight": _as_whole("self_attn.kv_a_layernorm.weight"),
    "self_attention.linear_kv_up_proj.weight": _by_rows("self_attn.kv_b_proj.weight"),
    "pre_mlp_layernorm.weight": _as_whole("post_attention_layernorm.weight"),
    "mlp.linear_fc1.weight": _gate_and_up("mlp"),
    "mlp.linear_fc2.weight": _by_columns("mlp.down_proj.weight"),
    "mlp.router.weight": _router,
    "mlp.router.expert_bias": _as_whole(ROUTER_BIAS),
    "mlp.shared_experts.linear_fc1.weight": _gate_and_up("mlp.shared_experts"),
    "mlp.shared_experts.linear_fc2.weight": _by_columns("mlp.shared_experts.down_proj.weight"),
    # Transformer Engine keeps a norm in the linear layer that follows it.
    "self_attention.linear_qkv.layer_norm_weight": _as_whole("input_layernorm.weight"),
    "self_attention.linear_q_up_proj.layer_norm_weight": _as_whole("self_attn.q_a_layernorm.weight"),
    "self_attention.linear_kv_up_proj.layer_norm_weight": _as_whole("self_attn.kv_a_layernorm.weight"),
    "mlp.linear_fc1.layer_norm_weight": _as_whole("post_attention_layernorm.weight"),
}
"""Parameters of a layer, by the name behind the layer's number."""
_LATENT_NAMES: Final = {"self_attention.q_layernorm.weight": _as_whole("self_attn.q_a_layernorm.weight")}
"""What the same names stand for in latent attention."""


def stacked_shape(pieces: Sequence[Piece]) -> Shape | None:
    """Return the shape of the stack, or None if the pieces do not fit on each other."""
    if not pieces or len({piece.shape[1:] for piece in pieces}) != 1:
        return None
    return (sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:])
