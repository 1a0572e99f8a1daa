"""FlexAttention on a processor: the same mask, computed by torch's scaled dot product attention.

FlexAttention has no backward on a CPU. `CpuFlexAttention` takes the same `BlockMask` and gives the same result; it
takes the place of FlexAttention through torchtitan's own override mechanism (`override.imports`, see `flex_on_cpu`).
The dense mask is built once per `BlockMask` and lives as long as it: batch * length^2 bytes, one byte per pair.
It refuses score functions and output transforms, which none of our models uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask
from torchtitan.config import derive, override
from torchtitan.models.common.attention import FlexAttention

MaskMod = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_CACHE = "_primus_dense_mask"


class CpuFlexAttention(FlexAttention):  # type: ignore[misc]
    """Attention with a `BlockMask` through `scaled_dot_product_attention`; same inputs and outputs as FlexAttention."""

    @dataclass(kw_only=True, slots=True)
    class Config(FlexAttention.Config):  # type: ignore[misc]
        """Nothing beyond FlexAttention's; block size and kernel options do not matter here."""

    def forward(
        self,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        attention_masks: BlockMask,
        scale: float | None = None,
        enable_gqa: bool = False,
        score_mod: object = None,
        out_transform: object = None,
        **_unused: object,
    ) -> torch.Tensor:
        """Attend; queries, keys and values are (batch, length, heads, width), keys may be longer than queries."""
        if score_mod is not None or out_transform is not None:
            raise NotImplementedError("attention on a CPU knows masks only: no score function, no output transform")
        query, key, value = (t.transpose(1, 2) for t in (q_BLNH, k_BLNH, v_BLNH))
        width = value.shape[-1]
        # The fused kernel wants one width; zero columns cost less than the unfused path (latent attention, 128 of 192).
        if width < query.shape[-1]:
            value = F.pad(value, (0, query.shape[-1] - width))
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=dense_mask(attention_masks), scale=scale, enable_gqa=enable_gqa
        )
        return out[..., :width].transpose(1, 2)


@override(  # type: ignore[untyped-decorator]
    target=FlexAttention.Config, exact=True, description="FlexAttention on a CPU, by SDPA with the same mask"
)
def flex_on_cpu(config: FlexAttention.Config) -> CpuFlexAttention.Config:
    """Replace FlexAttention; named in `override.imports`."""
    replacement: CpuFlexAttention.Config = derive(config, CpuFlexAttention.Config)
    return replacement


def dense_mask(block_mask: BlockMask) -> torch.Tensor:
    """Return the (batch, heads, queries, keys) boolean mask of a `BlockMask`; batch and heads may be 1.

    The first call evaluates the mask function and stores the result on the `BlockMask`.
    """
    cached = getattr(block_mask, _CACHE, None)
    if isinstance(cached, torch.Tensor):
        return cached
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    mask = _evaluate(block_mask.mask_mod, batch, heads, *block_mask.seq_lengths)
    if not torch.compiler.is_compiling():
        setattr(block_mask, _CACHE, mask)
    return mask


def _evaluate(mask_mod: MaskMod, batch: int, heads: int, queries: int, keys: int) -> torch.Tensor:
    # FlexAttention calls the function with one index each and vectorises; queries and keys are broadcast here instead,
    # which is the same for a function of comparisons and look-ups and ten times as fast as torch's `create_mask`.
    query, key = torch.arange(queries).unsqueeze(1), torch.arange(keys).unsqueeze(0)
    samples, head_ids = torch.arange(batch).unbind(), torch.arange(heads).unbind()
    rows = [mask_mod(b, h, query, key).expand(queries, keys) for b in samples for h in head_ids]
    return torch.stack(rows).view(batch, heads, queries, keys)


def create_block_mask_on_cpu(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: object = None,
    BLOCK_SIZE: int | tuple[int, int] = 128,
    **_unused: Any,
) -> BlockMask:
    """Stand in for `create_block_mask`: every block is listed as partly masked, so none has to be looked into.

    The mask function decides inside each block, so the attention is the same; only the block sparsity, which this
    kernel does not use, is given up.
    """
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    row_blocks, column_blocks = -(-Q_LEN // rows), -(-KV_LEN // columns)
    shape = (B or 1, H or 1, row_blocks)
    counts = torch.full(shape, column_blocks, dtype=torch.int32)
    indices = torch.arange(column_blocks, dtype=torch.int32).expand(*shape, column_blocks).contiguous()
    block_mask = BlockMask.from_kv_blocks(
        counts, indices, BLOCK_SIZE=(rows, columns), mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN)
    )
    # Now, so that a compiled layer finds it.
    dense_mask(block_mask)
    return block_mask
