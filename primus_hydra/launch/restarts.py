"""Whether a failed group of ranks is worth another start, and after how long. Pure.

A failure that comes back at the same place with the same words is not bad luck: another restart would only replay the
steps up to it. A failure that comes back with other words gets one more chance.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_BACKOFF_S = 60.0
SAME_PLACE_LIMIT = 3
"""Failures in a row that got no further than the one before, whatever they said."""


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
    """Remembers the failures of one attempt; `first` is the backoff after the first failure without progress."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._failures: list[Failure] = []

    def after(self, failure: Failure) -> Decision:
        """Decide what follows a failure."""
        before = self._failures[-1] if self._failures else None
        if before is not None and failure.step > before.step:
            self._failures.clear()
        self._failures.append(failure)
        idle = len(self._failures)
        place = f"at step {failure.step + 1}" if failure.step >= 0 else "before the first step"
        if idle > 1 and before is not None and failure == before:
            return Decision(restart=False, reason=f"the same failure came back {place}")
        if idle >= SAME_PLACE_LIMIT:
            return Decision(restart=False, reason=f"{idle} failures in a row {place} or earlier, without progress")
        wait = 0.0 if idle == 1 else min(self._first_s * 2 ** (idle - 2), LONGEST_BACKOFF_S)
        return Decision(restart=True, wait_s=wait)
