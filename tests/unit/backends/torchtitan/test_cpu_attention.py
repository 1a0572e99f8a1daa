"""Attention on a processor follows the same mask as FlexAttention, for every head layout, with gradients."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import torch
from torch.nn.attention.flex_attention import and_masks, create_block_mask, create_mask, flex_attention
from torchtitan.models.common.attention import (
    get_causal_mask_mod,
    get_efficient_causal_mask_mod_for_packed_document,
)

from primus_hydra.backends.torchtitan.cpu_attention import CpuFlexAttention, create_block_mask_on_cpu, dense_mask

LENGTH = 160


def packed(batch: int) -> torch.Tensor:
    """Positions of documents of different lengths, as the data loaders give them."""
    rows = [torch.cat([torch.arange(n) for n in (37 + 5 * row, 64)] + [torch.arange(LENGTH)]) for row in range(batch)]
    return torch.stack([row[:LENGTH] for row in rows])


def document_mask(batch: int) -> object:
    return and_masks(get_causal_mask_mod(), get_efficient_causal_mask_mod_for_packed_document(packed(batch)))


@pytest.mark.parametrize("batch", [1, 3])
def test_the_dense_mask_is_torchs(batch: int) -> None:
    mask_mod = document_mask(batch)
    ours = dense_mask(create_block_mask_on_cpu(mask_mod, batch, None, LENGTH, LENGTH, BLOCK_SIZE=(64, 128)))
    assert torch.equal(ours, create_mask(mask_mod, batch, None, LENGTH, LENGTH, device="cpu"))


def test_the_mask_of_a_sequence_shard_is_torchs() -> None:
    """Context parallelism shifts the queries, may differ per sample, and attends to more keys than queries."""
    order = torch.stack([torch.randperm(LENGTH), torch.randperm(LENGTH)])
    whole = document_mask(2)

    def shard(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return whole(b, h, order[b][q + 80], order[b][kv])

    ours = dense_mask(create_block_mask_on_cpu(shard, 2, None, 80, LENGTH))
    assert torch.equal(ours, create_mask(shard, 2, None, 80, LENGTH, device="cpu"))


@pytest.mark.parametrize(
    ("query_heads", "key_heads", "width", "value_width"), [(4, 4, 16, 16), (4, 2, 16, 16), (3, 3, 24, 16)]
)
def test_output_and_shape_equal_flex_attention(query_heads: int, key_heads: int, width: int, value_width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, LENGTH, heads, size, generator=generator)
        for heads, size in ((query_heads, width), (key_heads, width), (key_heads, value_width))
    )
    mask_mod, grouped = document_mask(2), query_heads != key_heads
    ours = CpuFlexAttention(CpuFlexAttention.Config())(
        q,
        k,
        v,
        attention_masks=create_block_mask_on_cpu(mask_mod, 2, None, LENGTH, LENGTH),
        scale=0.3,
        enable_gqa=grouped,
    )
    theirs = flex_attention(
        *(t.transpose(1, 2) for t in (q, k, v)),
        block_mask=create_block_mask(mask_mod, 2, None, LENGTH, LENGTH, device="cpu"),
        scale=0.3,
        enable_gqa=grouped,
    )
    torch.testing.assert_close(ours, theirs.transpose(1, 2), atol=1e-5, rtol=1e-5)


def test_gradients_stay_inside_a_document() -> None:
    q, k, v = (torch.randn(1, LENGTH, 2, 8, requires_grad=True) for _ in range(3))
    mask = create_block_mask_on_cpu(document_mask(1), 1, None, LENGTH, LENGTH)
    out = CpuFlexAttention(CpuFlexAttention.Config())(q, k, v, attention_masks=mask)
    out[:, 37:101].sum().backward()
    touched = k.grad.abs().sum(dim=(0, 2, 3)).nonzero().flatten()
    assert (touched.min().item(), touched.max().item()) == (37, 100)


def test_the_dense_mask_is_built_once_for_all_layers() -> None:
    mask_mod = Mock(wraps=get_causal_mask_mod())
    mask = create_block_mask_on_cpu(mask_mod, 2, None, LENGTH, LENGTH)
    layer = CpuFlexAttention(CpuFlexAttention.Config())
    for _ in range(3):
        layer(*(torch.randn(2, LENGTH, 2, 8) for _ in range(3)), attention_masks=mask)
    assert mask_mod.call_count == 2  # once per sample


def test_what_the_kernel_cannot_do_is_refused() -> None:
    q = torch.randn(1, 4, 1, 8)
    mask = create_block_mask_on_cpu(get_causal_mask_mod(), 1, None, 4, 4)
    with pytest.raises(NotImplementedError, match="masks only"):
        CpuFlexAttention(CpuFlexAttention.Config())(q, q, q, attention_masks=mask, score_mod=lambda s, b, h, i, j: s)
