"""How many samples a step takes: a constant, or a ramp over the samples of the beginning.

Megatron's own calculator is used, and is global because parts of Megatron ask it. Refused before training: a ramp of
which some size cannot be cut into microbatches, or that does not end at the global batch size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from megatron.core import num_microbatches_calculator as calculator

from primus_hydra.backends.megatron.sections import Batch
from primus_hydra.config.layout import Layout
from primus_hydra.errors import Problem, UserError, raise_all

_KEY = "backend.config.batch.rampup"


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """Knows the global batch size after any number of samples; `multiple` divides all of them."""

    layout: Layout
    multiple: int

    def at(self, consumed_samples: int) -> Layout:
        """Return the layout of the step that follows `consumed_samples` samples."""
        calculator.update_num_microbatches(consumed_samples, verbose=True)
        return replace(self.layout, global_batch_size=calculator.get_current_global_batch_size())


def batch_size(settings: Batch, layout: Layout, *, rank: int, multiple_of_microbatches: int = 1) -> BatchSize:
    """Start the calculator; raises UserError for a ramp that no step can follow.

    `multiple_of_microbatches` is what a virtual pipeline asks for: its number of stages' ranks.
    """
    multiple = layout.micro_batch_size * layout.dp * multiple_of_microbatches
    if settings.rampup is not None:
        raise_all(rampup_problems(settings.rampup, layout.global_batch_size, multiple))
    calculator.init_num_microbatches_calculator(
        rank, settings.rampup, layout.global_batch_size, layout.micro_batch_size, layout.dp
    )
    return BatchSize(layout=layout, multiple=multiple)


def rampup_problems(rampup: list[int], global_batch_size: int, multiple: int) -> list[Problem]:
    """Return everything that stands against a ramp [first size, increment, samples] up to `global_batch_size`."""
    if len(rampup) != 3 or min(rampup) < 1:
        return [_problem(f"{rampup} is not [first global batch size, increment, samples], each at least 1")]
    first, increment, _ = rampup
    if first >= global_batch_size or (global_batch_size - first) % increment:
        what = f"steps of {increment} from {first} do not lead up to training.global_batch_size={global_batch_size}"
        return [_problem(what)]
    sizes = [size for size in range(first, global_batch_size + 1, increment) if size % multiple]
    if sizes:
        return [
            _problem(f"a step of {sizes[0]} samples is not a multiple of the {multiple} that all ranks take at once")
        ]
    return []


def _problem(what: str) -> Problem:
    return Problem(key=_KEY, what=what, hint="null keeps the global batch size constant")


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
