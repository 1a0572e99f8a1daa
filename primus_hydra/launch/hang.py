"""Tells a hang from slow work, and who hangs: no progress for longer than the section's timeout, on any rank.

A log that does not grow says nothing. When a rank is late, the ranks that wait for others are those inside a
collective; the ones that are not, or that are the furthest behind, are named.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from primus_hydra.config.schema import TimeoutsConfig
from primus_hydra.runtime.pulse import Beat

_WAITING = re.compile(
    r"all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|barrier|\bwait\b|\brecv\b|\bsend\b|"
    r"batch_isend_irecv|monitored_barrier|synchronize|init_process_group|rendezvous|"
    r"distributed_c10d\.py|_functional_collectives\.py",
)


@dataclass(frozen=True, kw_only=True)
class Late:
    """A rank without progress: in which section, for how long, after which step."""

    rank: int
    section: str
    silent_s: float
    step: int


@dataclass(frozen=True, kw_only=True)
class Hang:
    """What is known of a hang; `stuck` are the ranks that the others seem to wait for."""

    late: tuple[Late, ...]
    stuck: tuple[int, ...]
    stacks: Mapping[int, str]

    def describe(self) -> str:
        """Return one line for people."""
        worst = max(self.late, key=lambda late: late.silent_s)
        names = ", ".join(map(str, self.stuck))
        after = f" after step {worst.step}" if worst.step >= 0 else ""
        where = {"startup": "in its start-up", "step": "in a step", "ending": "at its end"}.get(
            worst.section, f"in {worst.section}"
        )
        plural = "s" if len(self.stuck) > 1 else ""
        return f"no progress for {worst.silent_s:.0f} s {where}{after}; stuck: rank{plural} {names}"


def limit_of(section: str, timeouts: TimeoutsConfig) -> float:
    """Return how long a section may go on without progress, in seconds."""
    return float(getattr(timeouts, {"ending": "startup"}.get(section, section)))


def late_ranks(beats: Mapping[int, Beat], timeouts: TimeoutsConfig, *, now_s: float | None = None) -> list[Late]:
    """Return the ranks that have been silent for longer than their section allows."""
    now = time.monotonic() if now_s is None else now_s
    return [
        Late(rank=rank, section=beat.section, silent_s=now - beat.at_s, step=beat.step)
        for rank, beat in sorted(beats.items())
        if now - beat.at_s > limit_of(beat.section, timeouts)
    ]


def find_stuck(steps: Mapping[int, int], stacks: Mapping[int, str]) -> tuple[int, ...]:
    """Return the ranks that the others wait for: not in a collective, else the furthest behind, else all.

    `steps` are the last finished ones of all ranks that are known.

    A rank that cannot even write its stack (stopped, or deep in a call that nothing interrupts) waits for nobody.
    """
    busy = tuple(rank for rank in sorted(steps) if rank not in stacks or not waits(stacks[rank]))
    if busy and len(busy) < len(steps):
        return busy
    behind = min(steps.values())
    return tuple(rank for rank, step in sorted(steps.items()) if step == behind)


def waits(stack: str) -> bool:
    """Whether the main thread of a dumped stack is inside a collective: one of its innermost frames is."""
    return any(_WAITING.search(frame) for frame in main_thread(stack)[:6])


def main_thread(stack: str) -> Sequence[str]:
    """Return the frames of the thread that Python calls current or main, innermost first."""
    threads = re.split(r"\n(?=(?:Current thread|Thread) 0x)", stack.strip())
    chosen = next((thread for thread in reversed(threads) if "runtime/rank.py" in thread), threads[-1])
    return [line.strip() for line in chosen.splitlines() if line.strip().startswith("File ")]
