"""Multi-head latent attention for layers without Transformer Engine, right under tensor parallelism.

Megatron's own, built from local layers, computes two gradients wrongly there, without a word:
- The rotary part of the keys is one for all heads, and each rank's heads give a part of its gradient. The parts are
  never summed (megatron-core 0.16.1, multi_latent_attention.py: the gather after `linear_kv_down_proj` only splits).
- Without sequence parallelism every rank has the whole gradient of the query norm, and the sum over ranks that the
  norms of plain attention need makes it larger by their number (finalize_model_grads.py, by the parameter's name).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from megatron.core.parallel_state import get_tensor_model_parallel_group
from megatron.core.tensor_parallel.mappings import (
    gather_from_tensor_model_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.multi_latent_attention import MLASelfAttention


class LocalLatentAttention(MLASelfAttention):  # type: ignore[misc]
    """Megatron's latent attention whose projection into the latent comes whole, with the gradient of all heads."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        if self.config.tensor_model_parallel_size == 1:
            return
        self.linear_kv_down_proj.register_forward_hook(self._whole)
        if self.config.q_lora_rank is not None and not self.config.sequence_parallel:
            # Megatron averages such gradients instead of summing them; they are equal here.
            self.q_layernorm.weight.average_gradients_across_tp_domain = True

    def _whole(self, _: torch.nn.Module, inputs: Any, output: tuple[torch.Tensor, Any]) -> tuple[torch.Tensor, Any]:
        """Return the projection in its whole width, cut along the sequence under sequence parallelism.

        Megatron takes what has the whole width for the output of a projection that is not split, and then sums the
        gradient of the rotary part under sequence parallelism itself.
        """
        whole = gather_from_tensor_model_parallel_region(output[0])
        if self.config.sequence_parallel:
            return scatter_to_sequence_parallel_region(whole), output[1]
        latent, rotary = whole.split([self.config.kv_lora_rank, self.config.qk_pos_emb_head_dim], dim=-1)
        return torch.cat([latent, _SummedGradient.apply(rotary)], dim=-1), output[1]


class _SummedGradient(torch.autograd.Function):
    """The identity, whose gradient is the sum over the tensor parallel ranks.

    Megatron's own (`copy_to_tensor_model_parallel_region`) sums a copy of a gradient that is a slice, and drops it.
    """

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        whole = gradients[0].clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(whole, group=get_tensor_model_parallel_group())
        return whole
