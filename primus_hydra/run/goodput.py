"""Goodput: how much of a run's wall time went into steps that counted, and where the rest went. Pure.

What the launcher noted of each start of the ranks (seconds per section of rank 0's pulse) and the logged steps are all
that is needed. Every second of the run is in exactly one part, so the parts add up to the wall time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from primus_hydra.run.atomic import read_json
from primus_hydra.run.metrics import Row, number, read_metrics, step_of
from primus_hydra.run.paths import RunPaths


@dataclass(frozen=True, kw_only=True)
class StartTime:
    """One start of the ranks inside an attempt: seconds in each section of rank 0."""

    restart: int
    spent: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class AttemptTime:
    """One attempt: seconds since the epoch when it began and ended, and its starts of the ranks."""

    began: float
    ended: float
    starts: tuple[StartTime, ...] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """Parts of the wall time, in seconds; `share` is the productive part of 1.

    `idle` is between attempts, `launch` from the start of an attempt (or a rank's death) to the ranks' own first
    moment, `startup` from there to the first finished step, `replayed` steps that had been done before.
    """

    wall: float
    productive: float
    startup: float
    launch: float
    checkpoint: float
    validation: float
    replayed: float
    idle: float
    attempts: int
    restarts: int

    @property
    def share(self) -> float:
        """Productive part of the wall time."""
        return self.productive / self.wall if self.wall > 0 else 0.0

    def losses(self) -> list[tuple[str, float]]:
        """Return what was not productive, the largest loss first; nothing below a tenth of a second."""
        names = ("startup", "launch", "checkpoint", "validation", "replayed", "idle")
        parts = [(name, float(getattr(self, name))) for name in names]
        return sorted((part for part in parts if part[1] >= 0.1), key=lambda part: -part[1])

    def describe(self) -> str:
        """Return one line for people."""
        lost = ", ".join(f"{name} {seconds / self.wall:.0%}" for name, seconds in self.losses())
        return f"goodput {self.share:.0%} of {self.wall:,.0f} s" + (f" (lost: {lost})" if lost else "")

    def to_json(self) -> dict[str, float | int]:
        """Return plain data, with the share."""
        return {**asdict(self), "share": self.share}


def goodput(attempts: Sequence[AttemptTime], rows: Iterable[Row]) -> Goodput | None:
    """Account for the time of a run; None before the first attempt has begun."""
    if not attempts:
        return None
    idle = sum(max(0.0, after.began - before.ended) for before, after in itertools.pairwise(attempts))
    # Summed, not from the first moment to the last: the clock may have been set between attempts.
    wall = idle + sum(max(0.0, attempt.ended - attempt.began) for attempt in attempts)
    spent = [start.spent for attempt in attempts for start in attempt.starts]
    part = {
        name: sum(item.get(name, 0.0) for item in spent) for name in ("startup", "step", "checkpoint", "validation")
    }
    replayed = min(replayed_seconds(rows), part["step"])
    # What is in no section of a rank: starting processes, and the end of those that were lost.
    launch = max(0.0, wall - idle - sum(part.values()))
    return Goodput(
        wall=wall,
        productive=max(0.0, part["step"] - replayed),
        startup=part["startup"],
        launch=launch,
        checkpoint=part["checkpoint"],
        validation=part["validation"],
        replayed=replayed,
        idle=idle,
        attempts=len(attempts),
        restarts=sum(max(0, len(attempt.starts) - 1) for attempt in attempts),
    )


def replayed_seconds(rows: Iterable[Row]) -> float:
    """Return the step time of steps that were done again because the run had to go back to a checkpoint."""
    reached, before, lost = 0, (0, 0.0, 0.0), 0.0
    for row in rows:
        step = step_of(row)
        if step is None:
            continue
        here = (step, number(row, "attempt") or 0.0, number(row, "restart") or 0.0)
        # A step that was validated is logged twice in a row, and done once.
        if step <= reached and here != before:
            lost += number(row, "step_time_s") or 0.0
        reached, before = max(reached, step), here
    return lost


def read_attempts(paths: RunPaths) -> list[AttemptTime]:
    """Read what the launchers of a run noted of their time; an attempt without a note is left out."""
    found = (_attempt_of(paths.attempt(number).times) for number in paths.attempt_numbers())
    return [attempt for attempt in found if attempt is not None]


def goodput_so_far(paths: RunPaths) -> Goodput | None:
    """Account for the time of a run as it stands, whether or not it goes on; raises OSError.

    All its metrics are read only where it was started more than once: nothing is done again otherwise.
    """
    attempts = read_attempts(paths)
    started_again = len(attempts) > 1 or any(len(attempt.starts) > 1 for attempt in attempts)
    account = goodput(attempts, read_metrics(paths.metrics) if started_again else ())
    return account if account is not None and account.wall > 0 else None


def _attempt_of(path: Path) -> AttemptTime | None:
    said = read_json(path)
    try:
        tree = json.loads(json.dumps(said))
        starts = tuple(StartTime(restart=int(item["restart"]), spent=_spent(item["spent"])) for item in tree["starts"])
        return AttemptTime(began=float(tree["began"]), ended=float(tree["ended"]), starts=starts)
    except (KeyError, TypeError, ValueError):
        return None


def _spent(said: object) -> dict[str, float]:
    if not isinstance(said, Mapping):
        raise TypeError(f"not seconds by section: {said!r}")
    return {str(section): float(seconds) for section, seconds in said.items()}
