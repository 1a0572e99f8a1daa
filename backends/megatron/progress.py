"""What a run counts while it trains; saved in each checkpoint and restored from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class Progress:
    """Counts over all ranks and all attempts: optimizer steps, samples read, and tokens read (padding included).

    `step` also counts steps that a float16 loss scaler skipped: their samples are read, their update is not made.
    """

    step: int = 0
    consumed_samples: int = 0
    tokens: int = 0
