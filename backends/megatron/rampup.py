"""A global batch size that grows over the samples of the beginning: which ramps can be trained. Pure.

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


def _problem(what: str, hint: str = "null keeps the global batch size constant") -> Problem:
    return Problem(key=KEY, what=what, hint=hint)
