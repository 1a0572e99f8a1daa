"""One microbatch through the model, and its loss, as Megatron's pipeline schedules call for them.

The loss of a step is the sum over the tokens that count, over all data-parallel ranks, divided by their number: not a
mean of means, so neither the layout nor a loss mask changes what is minimised. Needs `calculate_per_token_loss`.
Documents in one sample are kept apart by the batch's mask in local layers, and as packed sequences by Transformer
Engine, which has no use for a mask of its own there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator

import torch
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.utils import get_batch_on_this_cp_rank

from primus_hydra.backends.megatron.batches import Batch

LossFunction = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]]
# megatron-core asks since 0.17 whether the split differs from sample to sample.
_PLAIN_SPLIT = (
    {"is_hybrid_cp": False} if "is_hybrid_cp" in inspect.signature(get_batch_on_this_cp_rank).parameters else {}
)
LOSS_SUM = "loss"
"""What the schedules collect of each microbatch: a pair, the summed loss and the number of tokens in it."""


class ForwardStep:
    """The function of (iterator over microbatches, chunk) that Megatron's schedules call for every microbatch."""

    def __init__(self, device: torch.device, *, pack_documents: bool) -> None:
        self._device = device
        self._pack_documents = pack_documents

    def __call__(self, batches: Iterator[Batch], chunk: torch.nn.Module) -> tuple[torch.Tensor, LossFunction]:
        """Return the output of the chunk and the function that makes a loss of it (used on the last stage only)."""
        batch = next(batches)
        values = get_batch_on_this_cp_rank(
            # Left out, the group is that of all ranks in megatron-core 0.19.
            _tensors(batch, self._device),
            cp_group=parallel_state.get_context_parallel_group(),
            **_PLAIN_SPLIT,
        )
        packed = {}
        if self._pack_documents and batch.documents is not None:
            values = {name: _in_one_row(value) for name, value in values.items()}
            packed["packed_seq_params"] = packed_documents(batch.documents, self._device)
        output = chunk(
            values["tokens"], values["position_ids"], values.get("attention_mask"), labels=values["labels"], **packed
        )
        return output, functools.partial(_summed_loss, values["loss_mask"])


def _tensors(batch: Batch, device: torch.device) -> dict[str, torch.Tensor]:
    named = {
        "tokens": batch.tokens,
        "labels": batch.labels,
        "loss_mask": batch.loss_mask,
        "position_ids": batch.position_ids,
        "attention_mask": batch.attention_mask,
    }
    return {name: value.to(device, non_blocking=True) for name, value in named.items() if value is not None}


def _summed_loss(
    mask: torch.Tensor, losses: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Return the summed loss for the backward, the number of its tokens, and both for the report."""
    mask = mask.view(-1).float()
    loss = torch.sum(losses.view(-1).float() * mask)
    tokens = mask.sum()
    return loss, tokens.to(torch.int), {LOSS_SUM: torch.stack([loss.detach().double(), tokens.double()])}


def packed_documents(documents: torch.Tensor, device: torch.device) -> PackedSeqParams:
    """Return where documents begin and end in a batch whose rows are laid behind each other.

    `documents` [b, s] names the document of each token. A row ends its last document.
    """
    changes = documents[:, 1:] != documents[:, :-1]
    first = torch.ones_like(changes[:, :1])
    starts = torch.cat([first, changes], dim=1).view(-1).nonzero().view(-1)
    bounds = torch.cat([starts, starts.new_tensor([documents.numel()])]).to(torch.int32)
    longest = int((bounds[1:] - bounds[:-1]).max())
    bounds = bounds.to(device)
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )


def _in_one_row(value: torch.Tensor) -> torch.Tensor:
    return value.reshape(1, -1)


def mean_loss(collected: list[dict[str, torch.Tensor]], device: torch.device) -> tuple[float, int]:
    """Return the mean loss of the collected microbatches of all ranks in nats, and the tokens in it; collective.

    Every rank gets the same values. Without any token the loss is not a number.
    """
    total = torch.zeros(2, dtype=torch.float64, device=device)
    for entry in collected:
        total += entry[LOSS_SUM]
    torch.distributed.all_reduce(total, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    if parallel_state.get_pipeline_model_parallel_world_size() > 1:
        torch.distributed.broadcast(
            total,
            src=parallel_state.get_pipeline_model_parallel_last_rank(),
            group=parallel_state.get_pipeline_model_parallel_group(),
        )
    loss, tokens = total.tolist()
    return (loss / tokens if tokens else float("nan")), int(tokens)
