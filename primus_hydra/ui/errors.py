"""How an error that a person can mend is shown: every problem, where it stands, how to mend it, and no traceback."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.text import Text

from primus_hydra.errors import PrimusError, Problem
from primus_hydra.ui.screen import show, show_lines


def error_lines(error: PrimusError) -> list[Text]:
    """Return the lines of an error; several problems are counted and numbered."""
    problems = error.problems
    count = f" ({len(problems)} problems)" if len(problems) > 1 else ""
    lines = [Text.assemble(("error: ", "bold red"), f"{error.headline}{count}")]
    for number, problem in enumerate(problems, start=1):
        lines += _problem_lines(problem, f"{number}. " if len(problems) > 1 else "")
    return lines


def show_error(error: PrimusError, stream: TextIO | None = None) -> None:
    """Print an error to `stream` (standard error by default); without colour and wrapping unless it is a terminal."""
    target = sys.stderr if stream is None else stream
    show_lines(error_lines(error), target)


def show_bug(trace: str, stream: TextIO | None = None) -> None:
    """Print a traceback, and that it is our fault and not the user's."""
    target = sys.stderr if stream is None else stream
    show(
        f"{trace}error: this is a bug of primus_hydra, not of your configuration; please report the lines above\n",
        target,
    )


def _problem_lines(problem: Problem, mark: str) -> list[Text]:
    margin = " " * (2 + len(mark))
    first = Text(f"  {mark}")
    if problem.key:
        first.append(problem.key, style="bold").append(": ")
    what, *rest = problem.what.splitlines() or [""]
    lines = [first.append(what), *(Text(margin + line) for line in rest)]
    if problem.where:
        lines.append(Text(f"{margin}at {problem.where}", style="dim"))
    hints = (problem.hint or "").splitlines()
    return lines + [Text(margin + line, style="green") for line in hints]
