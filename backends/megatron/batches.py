"""Batches of samples by their positions in the run, and the microbatches of a step: the same in any parallel layout.

The sample at position p is the p-th that all ranks together consume, whatever their number. Ours come packed and
ordered as for every backend; those of `data=megatron` come as Megatron draws them. The only state is how many were
consumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import torch
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig

from primus_hydra.backends.megatron.indexed import open_indexed
from primus_hydra.backends.megatron.masks import document_mask, documents_from_ends, documents_from_positions
from primus_hydra.backends.megatron.sections import ModelAndData
from primus_hydra.config.layout import Layout
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.order import Order, batch_positions
from primus_hydra.data.prepare import open_order, open_samples
from primus_hydra.data.samples import Samples
from primus_hydra.data.split import SplitName
from primus_hydra.runtime.contracts import RankContext

_FIELDS: Final = ("tokens", "labels", "loss_mask", "position_ids")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """b samples of s tokens, on the CPU.

    `tokens`, `labels` and `position_ids` are int64 [b, s], `loss_mask` is float32 [b, s] (0 where a label does not
    count). `documents` int32 [b, s] numbers the document of each token in its row; None without a document mask.
    `attention_mask` bool [b, 1, s, s] (true: masked) is for local layers; None where they see all that came before.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    loss_mask: torch.Tensor
    position_ids: torch.Tensor
    documents: torch.Tensor | None
    attention_mask: torch.Tensor | None = None


class Rows(Protocol):
    """Samples by position, without masks."""

    def __len__(self) -> int:
        """Samples that the split holds before it repeats or ends."""

    def batch(self, positions: Sequence[int]) -> Batch:
        """Return the samples at global positions."""


class PreparedRows:
    """Our own samples: every label counts, and positions start again with each document."""

    def __init__(self, samples: Samples, order: Order, *, has_documents: bool) -> None:
        self._samples = samples
        self._order = order
        self._has_documents = has_documents

    def __len__(self) -> int:
        """Samples of one epoch; positions go on over all epochs."""
        return len(self._samples)

    def batch(self, positions: Sequence[int]) -> Batch:
        """Return the samples at global positions."""
        samples = [self._samples.sample(index) for index in self._order.indices(positions)]
        position_ids = torch.from_numpy(np.stack([sample.positions for sample in samples]))
        return Batch(
            tokens=torch.from_numpy(np.stack([sample.inputs for sample in samples])),
            labels=torch.from_numpy(np.stack([sample.labels for sample in samples])),
            loss_mask=torch.ones(position_ids.shape, dtype=torch.float32),
            position_ids=position_ids,
            documents=documents_from_positions(position_ids) if self._has_documents else None,
        )


class IndexedRows:
    """Samples that Megatron drew; a document ends with the token `end`, None where documents are not told apart."""

    def __init__(self, dataset: torch.utils.data.Dataset[dict[str, torch.Tensor]], *, end: int | None) -> None:
        self._dataset = dataset
        self._end = end

    def __len__(self) -> int:
        """Samples that were drawn; there is none at a position from here on."""
        return len(self._dataset)  # type: ignore[arg-type]

    def batch(self, positions: Sequence[int]) -> Batch:
        """Return the samples at global positions; raises IndexError beyond the last."""
        if max(positions) >= len(self):
            raise IndexError(f"sample {max(positions)} of {len(self)}")
        samples = [self._dataset[position] for position in positions]
        stacked = {name: torch.stack([sample[name] for sample in samples]) for name in _FIELDS}
        documents = None if self._end is None else documents_from_ends(stacked["tokens"], self._end)
        return Batch(**stacked, documents=documents)


class BatchSource:
    """A split as a rank reads it: samples by position, with the masks that its layers need."""

    def __init__(self, rows: Rows, *, masks: bool) -> None:
        self._rows = rows
        self._masks = masks

    def __len__(self) -> int:
        """Samples of the split: of one epoch for ours, all that were drawn for Megatron's."""
        return len(self._rows)

    def batch(self, positions: Sequence[int]) -> Batch:
        """Return the samples at positions counted from the beginning of the run."""
        batch = self._rows.batch(positions)
        if not self._masks or batch.documents is None:
            return batch
        return replace(batch, attention_mask=document_mask(batch.documents))


class MicrobatchIterator:
    """The microbatches that one data-parallel rank takes in the step after `consumed_samples`, in order.

    `global_batch_size` is that step's, which is smaller than the layout's while it ramps up.
    """

    def __init__(
        self, source: BatchSource, layout: Layout, *, consumed_samples: int, dp_rank: int, global_batch_size: int
    ) -> None:
        self._source = source
        self._layout = replace(layout, global_batch_size=global_batch_size)
        self._consumed_samples = consumed_samples
        self._dp_rank = dp_rank

    def __iter__(self) -> Iterator[Batch]:
        for microbatch in range(self._layout.microbatches):
            yield self._source.batch(
                batch_positions(
                    self._layout,
                    consumed_samples=self._consumed_samples,
                    dp_rank=self._dp_rank,
                    microbatch=microbatch,
                )
            )


def open_batches(config: ModelAndData, job: JobConfig, context: RankContext, split: SplitName) -> BatchSource:
    """Open a split for the core trainer; not collective. Raises HostError or UserError as the openers do."""
    steps = job.training.steps if split == "train" else job.validation.steps
    # A batch size that ramps up takes fewer samples; Megatron's order depends on the number, so it stays fixed.
    samples = steps * context.layout.global_batch_size
    rows = open_rows(config.dataset, job, context, split, samples=samples)
    return BatchSource(rows, masks=config.model.layer_implementation == "local")


def open_rows(
    dataset: GPTDatasetConfig | None, job: JobConfig, context: RankContext, split: SplitName, *, samples: int
) -> Rows:
    """Open the samples of a split; `samples` is how many Megatron draws, and `dataset` is None for our own."""
    if dataset is not None:
        drawn = open_indexed(dataset, job, context, split, samples=samples)
        return IndexedRows(drawn, end=dataset.tokenizer.eod if dataset.reset_attention_mask else None)
    opened = open_samples(context.data, job, split)
    return PreparedRows(opened, open_order(opened, job, split), has_documents=job.data.document_mask)
