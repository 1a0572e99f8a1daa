"""The loss on held-out samples: the same ones at every measurement, each counted once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from primus_hydra.backends.megatron.batch_size import measured_samples
from primus_hydra.backends.megatron.batches import BatchSource
from primus_hydra.backends.megatron.forward import mean_loss
from primus_hydra.backends.megatron.microbatches import Pass
from primus_hydra.config.layout import Layout
from primus_hydra.config.schema.training import ValidationConfig


class Validator:
    """Measures the mean loss over the first `steps` global batches of the held-out split, or over all there is.

    All ranks take `multiple` samples at once. Raises UserError when it is built if there are fewer.
    """

    def __init__(
        self, settings: ValidationConfig, source: BatchSource, run: Pass, *, layout: Layout, multiple: int
    ) -> None:
        self._source = source
        self._layout = layout
        self._run = run
        self._samples = measured_samples(settings.steps * layout.global_batch_size, len(source), multiple)

    # With gradients on, routers count the tokens of a measurement towards the balance of their experts.
    @torch.no_grad()
    def measure(self, chunks: list[Any]) -> float:
        """Return the mean loss in nats per token on every rank; collective."""
        for chunk in chunks:
            chunk.eval()
        collected = []
        for first in range(0, self._samples, self._layout.global_batch_size):
            size = min(self._layout.global_batch_size, self._samples - first)
            layout = replace(self._layout, global_batch_size=size)
            collected += self._run(self._source, layout, consumed_samples=first, forward_only=True)
        for chunk in chunks:
            chunk.train()
        return mean_loss(collected, self._run.device)[0]


def measures_at(step: int, every: int, last_step: int) -> bool:
    """Whether validation follows a step."""
    return step % every == 0 or step == last_step
