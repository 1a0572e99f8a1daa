"""The patch that lets multi-latent attention use Megatron's own attention."""

from __future__ import annotations

import functools
from typing import Any

from primus_hydra.patches.megatron.conditions import BACKENDS, VERSIONS, engine_missing
from primus_hydra.patching import PatchContext, register_patch


@register_patch(
    "megatron.mla-local-attention",
    backend=BACKENDS,
    phase="build_args",
    versions=VERSIONS,
    condition=engine_missing,
    why="multi-latent attention hands the widths of keys and values to its inner attention, and the one that needs no "
    "Transformer Engine does not take them; 0.16 also compares with a class of Transformer Engine that is None there: "
    "TypeError when the model is built",
)
def take_the_widths(context: PatchContext) -> None:
    """Let the local attention take the widths; the values' width is that of its output."""
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    multi_latent_attention.HAVE_TE = False
    original = DotProductAttention.__init__

    @functools.wraps(original)
    def init(
        self: Any, *args: Any, k_channels: int | None = None, v_channels: int | None = None, **kwargs: Any
    ) -> None:
        original(self, *args, **kwargs)
        if v_channels is not None:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    DotProductAttention.__init__ = init
