"""What the rows of metrics.jsonl say about the pace of a run: smoothed loss, time per step, time left."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from primus_hydra.run.metrics import Row, number, step_of

SMOOTH_ROWS = 20
"""Rows in the memory of the smoothed loss, and in the window of the pace."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What is shown after one row; None where it is not known. `eta_s` is seconds until the last step."""

    step: int
    loss: float | None
    smooth_loss: float | None
    tokens_per_s: float | None
    mfu: float | None
    memory_gib: float | None
    validation_loss: float | None
    eta_s: float | None


class Pace:
    """Takes rows in order and keeps the running values; a step that goes back begins a new window."""

    def __init__(self, total_steps: int) -> None:
        self._total = total_steps
        self._weight = self._weighted = 0.0
        self._window: deque[tuple[int, float]] = deque(maxlen=SMOOTH_ROWS)

    def take(self, row: Row) -> Snapshot | None:
        """Return the state after `row`, or None if the row has no step."""
        step = step_of(row)
        if step is None:
            return None
        loss = number(row, "loss")
        self._smooth(loss)
        self._time(step, number(row, "time"))
        return Snapshot(
            step=step,
            loss=loss,
            smooth_loss=self._weighted / self._weight if self._weight else None,
            tokens_per_s=number(row, "tokens_per_s"),
            mfu=number(row, "mfu"),
            memory_gib=number(row, "memory_gib"),
            validation_loss=number(row, "validation_loss"),
            eta_s=self._eta(step, number(row, "step_time_s")),
        )

    def _smooth(self, loss: float | None) -> None:
        if loss is None or not math.isfinite(loss):
            return
        # Exponential mean, corrected for its start as Adam corrects its moments.
        keep = 1 - 2 / (SMOOTH_ROWS + 1)
        self._weight = keep * self._weight + (1 - keep)
        self._weighted = keep * self._weighted + (1 - keep) * loss

    def _time(self, step: int, moment: float | None) -> None:
        if moment is None:
            return
        if self._window and step <= self._window[-1][0]:
            self._window.clear()
        self._window.append((step, moment))

    def _eta(self, step: int, step_time_s: float | None) -> float | None:
        left = self._total - step
        if left <= 0:
            return None
        if len(self._window) > 1:
            (first, began), (last, ended) = self._window[0], self._window[-1]
            return left * (ended - began) / (last - first)
        return None if step_time_s is None else left * step_time_s
