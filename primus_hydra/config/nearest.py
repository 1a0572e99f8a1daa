"""The legal values nearest to an illegal one: divisors, multiples, splits of layers over stages. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable


def near_divisors(sizes: Iterable[int], wanted: int, *, most: int = 3) -> list[int]:
    """Return the numbers nearest to `wanted`, in order, that divide every one of `sizes`; 1 always does."""
    wholes = list(sizes)
    fit = [size for size in range(1, min(wholes) + 1) if all(whole % size == 0 for whole in wholes)]
    return sorted(sorted(fit, key=lambda size: (abs(size - wanted), size))[:most])


def near_multiples(step: int, wanted: int) -> list[int]:
    """Return the multiples of `step` next to `wanted`, below it first; none is zero."""
    below = wanted // step * step
    return [size for size in (below, below + step) if size > 0]


def in_words(values: Iterable[int]) -> str:
    """Return numbers as text: 1, 2 or 4."""
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def even_split(layers: int, stages: int) -> list[int]:
    """Return layers per stage as evenly as it goes, larger stages first: 61 over 4 is 16, 15, 15, 15."""
    each, more = divmod(layers, stages)
    return [each + (stage < more) for stage in range(stages)]


def weighted_split(layers: int, stages: int, first: int = 1, last: int = 1) -> list[int]:
    """Return layers per stage where the embedding weighs `first` layers and the output projection `last`.

    This is torchtitan's rule (`generate_llm_fqn_per_model_part` in its distributed/pipeline_parallel.py).
    """
    if stages == 1:
        return [layers]
    split = even_split(layers + first + last, stages)
    split[0] -= first
    split[-1] -= last
    return split
