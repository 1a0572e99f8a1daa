"""All microbatches of one step through the pipeline: Megatron's schedule with its iterators and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func

from primus_hydra.backends.megatron.batches import Batch, BatchSource, MicrobatchIterator
from primus_hydra.backends.megatron.forward import ForwardStep
from primus_hydra.config.layout import Layout


class Pass:
    """Runs a step's forwards, and its backwards unless it only measures."""

    def __init__(self, chunks: list[Any], device: torch.device, *, seq_length: int, pack_documents: bool) -> None:
        self.device = device
        self._chunks = chunks
        self._seq_length = seq_length
        self._pack_documents = pack_documents
        self._forward = ForwardStep(device, pack_documents=pack_documents)
        self._schedule = get_forward_backward_func()

    def __call__(
        self, source: BatchSource, layout: Layout, *, consumed_samples: int, forward_only: bool = False
    ) -> list[dict[str, torch.Tensor]]:
        """Return what the last stage collected of its microbatches (elsewhere an empty list); collective."""
        iterators = [self._iterator(source, layout, consumed_samples) for _ in self._chunks]
        # Packed samples lie behind each other in one row.
        rows = layout.micro_batch_size
        collected: list[dict[str, torch.Tensor]] = self._schedule(
            forward_step_func=self._forward,
            data_iterator=iterators if len(iterators) > 1 else iterators[0],
            model=self._chunks,
            num_microbatches=layout.microbatches,
            seq_length=self._seq_length * rows if self._pack_documents else self._seq_length,
            micro_batch_size=1 if self._pack_documents else rows,
            forward_only=forward_only,
        )
        return collected

    def _iterator(self, source: BatchSource, layout: Layout, consumed_samples: int) -> Iterator[Batch]:
        return iter(
            MicrobatchIterator(
                source,
                layout,
                consumed_samples=consumed_samples,
                dp_rank=parallel_state.get_data_parallel_rank(),
                global_batch_size=layout.global_batch_size,
            )
        )
