"""Which documents a sample holds, and the attention masks of local layers that follow from them.

Masks are Megatron's: true means that a token may not be seen. They grow with the square of the sample, so they are for
layers without Transformer Engine, which takes the borders of documents instead.
"""

from __future__ import annotations

import torch


def documents_from_positions(positions: torch.Tensor) -> torch.Tensor:
    """Number the documents of each row, from 0, by where positions start again; [b, s] int64 -> [b, s] int32."""
    return (positions == 0).cumsum(dim=1, dtype=torch.int32) - 1


def documents_from_ends(tokens: torch.Tensor, end: int) -> torch.Tensor:
    """Number the documents of each row, from 0; one follows each token `end`; [b, s] int64 -> [b, s] int32."""
    ended = (tokens == end).cumsum(dim=1, dtype=torch.int32)
    return torch.cat([torch.zeros_like(ended[:, :1]), ended[:, :-1]], dim=1)


def causal_mask(length: int) -> torch.Tensor:
    """Return the mask of everything after a token: bool [1, 1, length, length]."""
    return torch.ones(length, length, dtype=torch.bool).triu(diagonal=1)[None, None]


def document_mask(documents: torch.Tensor) -> torch.Tensor:
    """Return the causal mask inside documents: int32 [b, s] -> bool [b, 1, s, s]."""
    elsewhere = documents[:, None, :, None] != documents[:, None, None, :]
    return elsewhere | causal_mask(documents.shape[1])
