"""How an error that a person can mend is shown: every problem, where it stands, how to mend it, and no traceback."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from primus_hydra.errors import HostError, PrimusError, Problem

_HEADS = {True: "this machine cannot do that", False: "the configuration cannot be used"}


def error_lines(error: PrimusError) -> list[Text]:
    """Return the lines of an error; several problems are counted and numbered."""
    problems = error.problems
    head = _HEADS[isinstance(error, HostError)]
    count = f" ({len(problems)} problems)" if len(problems) > 1 else ""
    lines = [Text.assemble(("error: ", "bold red"), f"{head}{count}")]
    for number, problem in enumerate(problems, start=1):
        lines += _problem_lines(problem, f"{number}. " if len(problems) > 1 else "")
    return lines


def show_error(error: PrimusError, stream: TextIO | None = None) -> None:
    """Print an error to `stream` (standard error by default); without colour and wrapping unless it is a terminal."""
    target = sys.stderr if stream is None else stream
    with contextlib.suppress(BrokenPipeError):
        if target.isatty():
            console = Console(file=target, highlight=False, soft_wrap=True)
            for line in error_lines(error):
                console.print(line)
        else:
            target.write("".join(f"{line.plain}\n" for line in error_lines(error)))
            target.flush()


def show_bug(trace: str, stream: TextIO | None = None) -> None:
    """Print a traceback, and that it is our fault and not the user's."""
    target = sys.stderr if stream is None else stream
    with contextlib.suppress(BrokenPipeError):
        target.write(
            f"{trace}error: this is a bug of primus_hydra, not of your configuration; please report the lines above\n"
        )
        target.flush()


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
