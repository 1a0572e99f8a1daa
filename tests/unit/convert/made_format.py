"""A made-up backend for tests of conversions: queries and keys of all layers are one tensor there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from primus_hydra.convert.layout import NativeLayout, StoredPart
from primus_hydra.weights.pieces import Piece, rows_of, whole_of
from primus_hydra.weights.tensors import Shape

WIDTH, HEADS = 16, 4
LAYERS = 12
ROWS = 32


def shapes() -> dict[str, Shape]:
    """The Hugging Face side."""
    square = (WIDTH, WIDTH)
    layers = {f"layers.{layer}.{name}": square for layer in range(LAYERS) for name in ("q", "k", "down")}
    return {"embed": (ROWS, WIDTH), **layers, "norm": (WIDTH,)}


def layout() -> NativeLayout:
    """The backend's side: pairs in the queries, and the rows of `down` cut in two."""
    expected = shapes()
    parts = [StoredPart(key="embed", offset=(0, 0), shape=(ROWS, WIDTH), pieces=(whole_of("embed", expected),))]
    for layer in range(LAYERS):
        prefix = f"layers.{layer}."
        both = tuple(whole_of(f"{prefix}{name}", expected) for name in "qk")
        parts.append(
            StoredPart(key="qk", offset=(layer, 0, 0), shape=(1, 2 * WIDTH, WIDTH), pieces=both, pairs=2 * HEADS)
        )
        for half in range(2):
            rows = (half * WIDTH // 2, (half + 1) * WIDTH // 2)
            piece: Piece = rows_of(f"{prefix}down", expected, rows)
            parts.append(
                StoredPart(key="down", offset=(layer, rows[0], 0), shape=(1, WIDTH // 2, WIDTH), pieces=(piece,))
            )
    parts.append(StoredPart(key="norm", offset=(0,), shape=(WIDTH,), pieces=(whole_of("norm", expected),)))
    stored: dict[str, Shape] = {
        "embed": (ROWS, WIDTH),
        "qk": (LAYERS, 2 * WIDTH, WIDTH),
        "down": (LAYERS, WIDTH, WIDTH),
        "norm": (WIDTH,),
    }
    return NativeLayout(parts=parts, shapes=stored, objects={"state/shard_0_1": b"kept as it is"})


def write_source(folder: Path, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Write random weights in two files with an index-free folder; return them."""
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    tensors: dict[str, Any] = {
        name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes().items()
    }
    names = list(tensors)
    for number, group in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in group}, folder / f"part-{number}.safetensors")
    (folder / "config.json").write_text("{}")
    return tensors
