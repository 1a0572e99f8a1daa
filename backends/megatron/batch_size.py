"""How many samples a step takes: a constant, or a ramp over the samples of the beginning.

The ramp is our own: megatron-core 0.19 takes one without a word and ignores it. Megatron's calculator, which is global
because its CUDA graphs ask it for the number of microbatches, is told of every change. Refused before training: a ramp
of which some size cannot be cut into microbatches, or that does not end at the global batch size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from megatron.core import num_microbatches_calculator as calculator

from primus_hydra.backends.megatron.rampup import rampup_problems, size_at
from primus_hydra.backends.megatron.sections import Batch
from primus_hydra.config.layout import Layout
from primus_hydra.errors import Problem, UserError, raise_all


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """Knows the global batch size after any number of samples; `multiple` divides all of them."""

    layout: Layout
    multiple: int
    rank: int
    rampup: tuple[int, int, int] | None

    def at(self, consumed_samples: int) -> Layout:
        """Return the layout of the step that follows `consumed_samples` samples."""
        whole = self.layout.global_batch_size
        size = whole if self.rampup is None else size_at(self.rampup, whole, consumed_samples)
        if size != calculator.get_current_global_batch_size():
            calculator.reconfigure_num_microbatches_calculator(self.rank, None, *_sizes(self.layout, size))
        return replace(self.layout, global_batch_size=size)


def batch_size(settings: Batch, layout: Layout, *, rank: int, multiple_of_microbatches: int = 1) -> BatchSize:
    """Start the calculator; raises UserError for a ramp that no step can follow.

    `multiple_of_microbatches` is what a virtual pipeline asks for: its number of stages' ranks.
    """
    multiple = layout.micro_batch_size * layout.dp * multiple_of_microbatches
    rampup = settings.rampup
    if rampup is not None:
        raise_all(rampup_problems(rampup, layout.global_batch_size, multiple))
    calculator.init_num_microbatches_calculator(rank, None, *_sizes(layout, layout.global_batch_size))
    ramp = (rampup[0], rampup[1], rampup[2]) if rampup is not None else None
    return BatchSize(layout=layout, multiple=multiple, rank=rank, rampup=ramp)


def _sizes(layout: Layout, global_batch_size: int) -> tuple[int, int, int]:
    return global_batch_size, layout.micro_batch_size, layout.dp


def measured_samples(wanted: int, available: int, multiple: int) -> int:
    """Return how many samples a measurement takes: what is wanted, or what there is, in whole microbatches.

    Raises UserError if there are not enough for one microbatch on every rank.
    """
    samples = min(wanted, available) // multiple * multiple
    if samples == 0:
        raise UserError(
            Problem(
                key="data.validation_fraction",
                what=f"{available} validation samples are fewer than the {multiple} that all ranks take at once",
                hint="raise it, or set validation.enable=false",
            )
        )
    return samples
