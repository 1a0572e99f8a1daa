"""From pieces to a backend's tensor, and back: stacking, and the order of rows within a head."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from primus_hydra.convert.layout import StoredPart


def stack(part: StoredPart, pieces: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Return a part as the backend keeps it, in memory of its own; pieces are in the part's order."""
    rows = pieces[0] if len(pieces) == 1 else torch.cat([piece.to(dtype) for piece in pieces])
    if part.pairs is not None:
        rows = _in_pairs(rows, part.pairs)
    return rows.to(dtype).reshape(part.shape).contiguous()


def unstack(part: StoredPart, stored: torch.Tensor) -> torch.Tensor:
    """Return the rows of a part as Hugging Face keeps them: the pieces on each other."""
    rows = stored.reshape(part.stacked)
    return rows if part.pairs is None else _in_halves(rows, part.pairs)


def _in_pairs(rows: torch.Tensor, heads: int) -> torch.Tensor:
    height, *rest = rows.shape
    return rows.reshape(heads, 2, height // heads // 2, *rest).transpose(1, 2).reshape(height, *rest)


def _in_halves(rows: torch.Tensor, heads: int) -> torch.Tensor:
    height, *rest = rows.shape
    return rows.reshape(heads, height // heads // 2, 2, *rest).transpose(1, 2).reshape(height, *rest)
