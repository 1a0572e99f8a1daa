from __future__ import annotations

import torch
from megatron.core.datasets.gpt_dataset import _get_ltor_masks_and_position_ids

from primus_hydra.backends.megatron.masks import (
    causal_mask,
    document_mask,
    documents_from_ends,
    documents_from_positions,
)


def test_a_document_begins_where_positions_start_again() -> None:
    positions = torch.tensor([[0, 1, 2, 0, 0, 1], [0, 1, 2, 3, 4, 5]])
    documents = documents_from_positions(positions)
    assert documents.tolist() == [[0, 0, 0, 1, 2, 2], [0, 0, 0, 0, 0, 0]]
    assert documents.dtype == torch.int32


def test_the_token_that_ends_a_document_belongs_to_it() -> None:
    tokens = torch.tensor([[5, 9, 6, 9, 9, 7], [9, 5, 5, 5, 5, 9]])
    assert documents_from_ends(tokens, 9).tolist() == [[0, 0, 1, 1, 2, 3], [0, 1, 1, 1, 1, 1]]


def test_a_token_sees_itself_and_what_came_before_it_in_its_document() -> None:
    seen = ~document_mask(torch.tensor([[0, 0, 1, 1]], dtype=torch.int32))
    assert seen.int().tolist() == [[[[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]]]


def test_masks_are_the_ones_that_megatron_makes() -> None:
    tokens = torch.randint(0, 4, (3, 32), generator=torch.Generator().manual_seed(0))
    ours = document_mask(documents_from_ends(tokens, 0))
    theirs = [_get_ltor_masks_and_position_ids(row, 0, True, True, True, True)[0] for row in tokens]
    assert ours.equal(torch.stack(theirs))
    plain = _get_ltor_masks_and_position_ids(tokens[0], 0, False, False, False, True)[0]
    assert causal_mask(32)[0].equal(plain)
