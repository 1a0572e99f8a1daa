"""A split as upstream's training loop wants it: a torch data set; its item i is the sample at position i of the run."""

from __future__ import annotations

import torch
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig

from primus_hydra.backends.megatron.batches import BatchSource, open_rows
from primus_hydra.backends.megatron.indexed import dataset_kwargs
from primus_hydra.backends.megatron.masks import causal_mask
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.split import SplitName
from primus_hydra.runtime.contracts import RankContext


class PositionDataset(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Items by position: `tokens`, `labels`, `loss_mask`, `position_ids` [s]; `attention_mask` [1, s, s] with `masks`.

    Types are those of `Batch`.
    """

    def __init__(self, source: BatchSource, *, samples: int, masks: bool) -> None:
        self._source = source
        self._samples = samples
        self._masks = masks

    def __len__(self) -> int:
        """Positions that may be asked for."""
        return self._samples

    def __getitem__(self, position: int) -> dict[str, torch.Tensor]:
        if not 0 <= position < self._samples:
            raise IndexError(f"sample {position} of {self._samples}")
        batch = self._source.batch([position])
        item = {
            "tokens": batch.tokens[0],
            "labels": batch.labels[0],
            "loss_mask": batch.loss_mask[0],
            "position_ids": batch.position_ids[0],
        }
        if self._masks:
            mask = causal_mask(len(item["tokens"])) if batch.attention_mask is None else batch.attention_mask
            item["attention_mask"] = mask[0]
        return item


def open_dataset(
    job: JobConfig,
    context: RankContext,
    split: SplitName,
    *,
    samples: int,
    masks: bool,
    config: GPTDatasetConfig | None = None,
) -> PositionDataset:
    """Open `samples` positions of a split on any rank; not collective. `masks`: the layers take an attention mask.

    `config` replaces, for `data=megatron`, what the neutral keys say. Held-out samples that Megatron draws may be fewer
    than asked for, as none comes twice; ours start over.
    """
    if context.data.blend is not None and config is None:
        config = GPTDatasetConfig(**dataset_kwargs(job, context))
    rows = open_rows(config if context.data.blend is not None else None, job, context, split, samples=samples)
    length = samples if context.data.blend is None else min(samples, len(rows))
    return PositionDataset(BatchSource(rows, masks=masks), samples=length, masks=masks)
