"""Whether a failed group of ranks is worth another start, and after how long. Pure.

Progress is a step that no start of this attempt had finished before. A failure that comes back at the same place with
the same words is not bad luck: another restart would only replay the steps up to it. A failure that comes back with
other words gets one more chance.

A start that dies before its first step, where an earlier one has stepped, is judged apart: the job can start, so the
machine is at fault (a port, a file system, a device that is not free yet). Such starts are tried again after a pause,
whatever they say, until there are too many in a row, and they do not count as failures of the training.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_BACKOFF_S = 60.0
SAME_PLACE_LIMIT = 3
"""Failures without progress, or starts in a row without a step, whatever they said."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failure of the group: `step` is the last finished one of any rank, -1 before the first; `said` its words."""

    step: int
    said: str


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do after a failure: restart after a pause in seconds, or not, and why not."""

    restart: bool
    wait_s: float = 0.0
    reason: str = ""


class RestartPolicy:
    """Remembers the failures of one attempt; `first_s` is the backoff after the first failure without progress."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._furthest = -1
        self._idle: list[Failure] = []
        self._starts = 0
        self.failures = 0
        """Failures so far."""

    def after(self, failure: Failure) -> Decision:
        """Decide what follows a failure."""
        self.failures += 1
        if failure.step < 0 <= self._furthest:
            return self._after_start()
        self._starts = 0
        if failure.step > self._furthest:
            self._furthest = failure.step
            self._idle.clear()
        return self._after_step(failure)

    def _after_start(self) -> Decision:
        self._starts += 1
        if self._starts >= SAME_PLACE_LIMIT:
            return Decision(restart=False, reason=f"{self._starts} starts in a row failed before their first step")
        return Decision(restart=True, wait_s=self._pause(self._starts))

    def _after_step(self, failure: Failure) -> Decision:
        came_back = failure in self._idle
        self._idle.append(failure)
        count = len(self._idle)
        if came_back:
            return Decision(restart=False, reason=f"the same failure came back {_place(failure.step)}")
        if count >= SAME_PLACE_LIMIT:
            place = _place(self._furthest)
            return Decision(restart=False, reason=f"{count} failures in a row {place} or earlier, without progress")
        return Decision(restart=True, wait_s=self._pause(count - 1))

    def _pause(self, failures: int) -> float:
        return min(self._first_s * 2 ** (failures - 1), LONGEST_BACKOFF_S) if failures else 0.0


def _place(step: int) -> str:
    return f"at step {step + 1}" if step >= 0 else "before the first step"
