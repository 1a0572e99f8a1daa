"""`task.action=follow`: show a run while it goes on, from any terminal, until it ends or Ctrl-C.

Reads what the run writes; the run knows nothing of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from primus_hydra.errors import ExitCode
from primus_hydra.run.condition import Condition
from primus_hydra.run.metrics import MetricsTail, Row, newest_rows
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import saved_tree
from primus_hydra.tasks.runs_jobs import RunLook
from primus_hydra.ui.output import print_json, print_lines
from primus_hydra.ui.progress import ProgressView
from primus_hydra.ui.runs_text import headline

LOOK_EVERY_S = 0.3


def follow_run(name: str, root: Path, *, as_json: bool) -> int:
    """Show each logged step as it comes, the last one first; in JSON one object per line. Always returns 0."""
    paths = RunPaths(root)
    look = RunLook(paths)
    condition = look.condition()
    try:
        if as_json:
            _follow(paths, look, _print_rows)
        else:
            with ProgressView(_steps(paths, condition)) as view:
                _follow(paths, look, view.feed)
        condition = look.condition()
    except KeyboardInterrupt:
        condition = look.condition()
    if not as_json:
        print_lines([_last_word(name, condition)])
    return int(ExitCode.DONE)


def _follow(paths: RunPaths, look: RunLook, show: Callable[[Iterable[Row]], None]) -> None:
    tail = MetricsTail(paths.metrics, skip_existing=True)
    show(newest_rows(paths.metrics, 1))
    goes_on = True
    while goes_on and not _nobody_reads():
        condition = look.condition()  # before the rows: the last ones are written before the end
        goes_on = condition.live or condition.word == "queued"
        show(tail.poll())
        time.sleep(LOOK_EVERY_S if goes_on else 0)


def _steps(paths: RunPaths, condition: Condition) -> int:
    """Return how many steps the run will have; before it has a state, its configuration knows, and 0 is unknown."""
    if condition.state is not None:
        return condition.state.steps
    training = (saved_tree(paths.config) or {}).get("training")
    steps = training.get("steps") if isinstance(training, dict) else None
    return steps if isinstance(steps, int) else 0


def _print_rows(rows: Iterable[Row]) -> None:
    for row in rows:
        print_json(row, indent=None)


def _last_word(name: str, condition: Condition) -> str:
    return headline(name, condition) + ("; it goes on without being followed" if condition.live else "")


def _nobody_reads() -> bool:
    """Whether the reader of our pipe is gone: lines come rarely, and a failed write would tell too late."""
    with contextlib.suppress(OSError, ValueError):
        output = sys.stdout.fileno()
        if stat.S_ISFIFO(os.fstat(output).st_mode):
            watch = select.poll()
            watch.register(output, 0)
            return any(event & select.POLLERR for _, event in watch.poll(0))
    return False
