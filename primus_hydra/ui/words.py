"""How numbers read on the screen: durations, rates, sizes, losses."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """Return a duration in two units at most: 0.4 s, 12 s, 3 min 05 s, 2 h 10 min, 3 d 04 h."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, lower, step in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // step:02d} {lower}"
    return f"{whole} s"


def amount(value: float) -> str:
    """Return a count in three digits with k, M, G or T."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def loss(value: float) -> str:
    """Return a loss in nats per token with four digits after the point."""
    return f"{value:.4f}"
