"""A global batch size that grows over the samples of the beginning: its size, and which ramps can be trained. Pure.

Refused: a ramp of which some size cannot be cut into microbatches, or that does not end at the global batch size.
"""

from __future__ import annotations

from primus_hydra.errors import Problem

KEY = "backend.config.batch.rampup"


def rampup_problems(rampup: list[int], global_batch_size: int, multiple: int) -> list[Problem]:
    """Return everything that stands against a ramp [first size, increment, samples] up to `global_batch_size`.

    `multiple` is what all ranks take at once, in samples.
    """
    if len(rampup) != 3 or min(rampup) < 1:
        return [_problem(f"{rampup} is not [first global batch size, increment, samples], each at least 1")]
    first, increment, _ = rampup
    if first >= global_batch_size or (global_batch_size - first) % increment:
        what = f"steps of {increment} from {first} do not lead up to training.global_batch_size={global_batch_size}"
        return [_problem(what)]
    sizes = [size for size in range(first, global_batch_size + 1, increment) if size % multiple]
    if sizes:
        what = f"a step of {sizes[0]} samples is not a multiple of the {multiple} that all ranks take at once"
        return [_problem(what, "set a smaller training.micro_batch_size (auto takes a rank's whole share at once)")]
    return []


def size_at(rampup: tuple[int, int, int], global_batch_size: int, consumed_samples: int) -> int:
    """Return the global batch size of the step after `consumed_samples` samples, as megatron-core 0.16 has it.

    The samples of a ramp [first size, increment, samples] are shared out evenly between the sizes below the last.
    """
    first, increment, samples = rampup
    if consumed_samples > samples:
        return global_batch_size
    per_size = samples / ((global_batch_size - first) // increment)
    return min(first + int(consumed_samples / per_size) * increment, global_batch_size)


def _problem(what: str, hint: str = "null keeps the global batch size constant") -> Problem:
    return Problem(key=KEY, what=what, hint=hint)
