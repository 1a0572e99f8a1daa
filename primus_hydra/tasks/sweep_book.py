"""The book of a sweep: a row for each point of one command, kept in the sweep's folder and shown at the end.

It is written before anything starts and after each piece of news, so that a command that is killed leaves it right.
Points of commands before, for the same sweep, stand in it with what their runs say now. Where it cannot be written, the
sweep goes on without it, and says so.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from primus_hydra.config.composed import Composed
from primus_hydra.errors import ExitCode, PrimusError, Problem
from primus_hydra.run.atomic import write_text
from primus_hydra.run.paths import RunPaths, SweepPaths
from primus_hydra.run.sweep import AUTO, PointRow, Sweep, write_sweep
from primus_hydra.run.sweep_look import judged, looked_at, objective_value
from primus_hydra.tasks.contract import PointEnd
from primus_hydra.tasks.run_folder import run_paths
from primus_hydra.tasks.runs_sweep import rows_now
from primus_hydra.ui.errors import error_lines, show_bug, show_error
from primus_hydra.ui.output import printable
from primus_hydra.ui.screen import show
from primus_hydra.ui.sweep_text import sweep_lines

_QUOTED = re.compile(r"'([^'\\]*)'", re.DOTALL)


class SweepBook:
    """Rows of the points of this command, by the directory of their run."""

    def __init__(self) -> None:
        self.paths: SweepPaths | None = None
        self._objective = AUTO
        self._rows: dict[Path, PointRow] = {}
        self._shown: str | None = None
        self._unwritten: str | None = None

    def plan(self, composed: Composed, state: str = "not started", reason: str | None = None) -> RunPaths:
        """Take a point in, and return the paths of its run; the first one says where the sweep lies."""
        paths = run_paths(composed)
        if self.paths is None:
            self.paths, self._objective = SweepPaths(paths.root.parent), composed.job.metrics.objective
        overrides = tuple(map(unquoted, composed.swept))
        self._rows[paths.root] = PointRow(
            point=paths.root.name, overrides=overrides, run=str(paths.root), state=state, reason=reason
        )
        return paths

    def note(self, paths: RunPaths, **facts: Any) -> None:
        """Note facts of a point: fields of its row."""
        self._rows[paths.root] = replace(self._rows[paths.root], **facts)

    def look(self, paths: RunPaths, **facts: Any) -> None:
        """Note what the run of a point says now; `facts` are known better here."""
        self._rows[paths.root] = looked_at(self._rows[paths.root])
        self.note(paths, **facts)

    def fail(self, paths: RunPaths, error: Exception, state: str = "failed") -> int:
        """Show the error of a point, keep it whole in a log of its own, and return its exit code."""
        text, reason, code = _told(error)
        self._show(error, text, paths)
        log = self._keep(paths, text)
        self.note(paths, state=state, reason=reason, exit_code=code, log=log)
        return code

    def code_of(self, paths: RunPaths) -> int:
        """Return the exit code of a point; 0 for one that has none."""
        return self._rows[paths.root].exit_code or int(ExitCode.DONE)

    def end_of(self, paths: RunPaths) -> PointEnd:
        """Return what a sweeper is told of a point that has ended."""
        row = self._rows[paths.root]
        if row.state != "finished":
            return PointEnd(problem=f"{', '.join(row.overrides)}: {row.state}: {row.reason or 'see its log'}")
        metric, value = objective_value(paths, self._objective)
        if value is None or value != value or value in (float("inf"), float("-inf")):
            return PointEnd(problem=f"{', '.join(row.overrides)}: its {metric} is {value}")
        return PointEnd(value=value)

    def write(self) -> Sweep:
        """Write the book; return the sweep as it is in it, with all points."""
        if self.paths is None:
            return Sweep(metric="loss")
        try:
            return write_sweep(self.paths, self._whole)
        except (OSError, PrimusError) as error:
            self._say_unwritten(str(error).partition("\n")[0])
            return self._whole(())

    def show(self) -> None:
        """Write the book, and print its table."""
        sweep = self.write()
        if self.paths is not None:
            show("".join(f"{printable(line)}\n" for line in sweep_lines(sweep, self.paths)), sys.stdout)

    def _whole(self, before: Sequence[PointRow]) -> Sweep:
        mine = {row.run: row for row in self._rows.values()}
        others = rows_now([row for row in before if row.run not in mine])
        now = {row.run: row for row in others}
        kept = [mine.get(row.run) or now[row.run] for row in before]
        known = {row.run for row in before}
        return judged([*kept, *(row for run, row in mine.items() if run not in known)], self._objective)

    def _show(self, error: Exception, text: str, paths: RunPaths) -> None:
        """Show an error once, and not again for each point that has the same."""
        label = ", ".join(self._rows[paths.root].overrides)
        if text == self._shown:
            show(f"{label}: the same error\n", sys.stderr)
            return
        self._shown = text
        show(f"{label}:\n", sys.stderr)
        if isinstance(error, PrimusError):
            show_error(error)
        else:
            show_bug(text)

    def _keep(self, paths: RunPaths, text: str) -> str | None:
        if self.paths is None:
            return None
        file = self.paths.error(paths.root.name)
        try:
            write_text(file, text)
        except OSError as error:
            self._say_unwritten(error.strerror or str(error))
            return None
        return str(file)

    def _say_unwritten(self, why: str) -> None:
        if self._unwritten is None and self.paths is not None:
            show(f"the table of the sweep cannot be written to {self.paths.root}: {why}\n", sys.stderr)
        self._unwritten = why


def unquoted(override: str) -> str:
    """Return an override without the quotes that its text has only for Hydra's grammar."""
    key, _, value = override.partition("=")
    quoted = _QUOTED.fullmatch(value)
    return override if quoted is None else f"{key}={quoted[1]}"


def _told(error: Exception) -> tuple[str, str, int]:
    """Return an error whole, in a few words, and its exit code."""
    if isinstance(error, PrimusError):
        whole = "".join(f"{line.plain}\n" for line in error_lines(error))
        return whole, "; ".join(map(_words, error.problems)), int(error.exit_code)
    whole = "".join(traceback.format_exception(error))
    return whole, f"a bug of primus_hydra: {type(error).__name__}: {error}", int(ExitCode.BUG)


def _words(problem: Problem) -> str:
    return f"{problem.key}: {problem.what}" if problem.key else problem.what
