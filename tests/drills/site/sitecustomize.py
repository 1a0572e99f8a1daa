"""A clock that is set back: Python imports this module in every process that finds it.

With `DRILL_CLOCK` the time of day is an hour ahead until the file of that name exists, and right from then on: for a
process that runs meanwhile, somebody has set the clock back by an hour. Clocks that only count seconds are left alone,
as the kernel leaves them alone.
"""

from __future__ import annotations

import os
import time

AHEAD_S = 3600


def _set_ahead(until: str) -> None:
    seconds, nanoseconds = time.time, time.time_ns

    def ahead() -> int:
        return 0 if os.path.exists(until) else AHEAD_S  # noqa: PTH110 - pathlib costs every Python's start

    time.time = lambda: seconds() + ahead()
    time.time_ns = lambda: nanoseconds() + ahead() * 10**9


if "DRILL_CLOCK" in os.environ:
    _set_ahead(os.environ["DRILL_CLOCK"])
