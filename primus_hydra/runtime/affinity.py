"""Keeps this rank on the CPUs that the plan gave it; a binding that is not possible any more is worth a warning only.

Must come before a library starts its threads, which inherit the mask. Memory needs no policy of its own: the kernel
puts a page on the node of the CPU that touches it first, and from here on that is one of the rank's. (What a forked
rank shares with its server stays where the server put it, until the rank writes to it.)
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.host.cpu_list import format_cpu_list, parse_cpu_list


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What to say of the binding once there is a log; `level` is one of logging's."""

    level: int
    text: str


def bind_rank(cpus: Sequence[str], local_rank: int) -> Notice | None:
    """Bind every thread of this process to the CPUs of its rank; None if the plan binds none. Never raises OSError."""
    if not cpus:
        return None
    wanted = parse_cpu_list(cpus[local_rank])
    try:
        os.sched_setaffinity(0, wanted)
    except OSError as error:
        text = f"not bound to CPUs {cpus[local_rank]}, which this process may not use any more: {error.strerror}"
        return Notice(level=logging.WARNING, text=text)
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread.name), wanted)
    return _notice(wanted, frozenset(os.sched_getaffinity(0)))


def _notice(wanted: frozenset[int], got: frozenset[int]) -> Notice:
    if got == wanted:
        return Notice(level=logging.INFO, text=f"bound to CPUs {format_cpu_list(got)}")
    text = f"bound to CPUs {format_cpu_list(got)} only: of {format_cpu_list(wanted)} no others may be used any more"
    return Notice(level=logging.WARNING, text=text)
