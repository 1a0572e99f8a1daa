"""The last words of a run: what came out, where it lies, and what to type next.

Built from plain facts, so that every ending can be tested without a run; nothing here reads a checkpoint or decides
whether a run may go on.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TextIO

from rich.text import Text

from primus_hydra.run.metrics import Row, last_per_step, number
from primus_hydra.ui.screen import show_lines
from primus_hydra.ui.words import amount, duration, loss

Ending = Literal["done", "finished_before", "interrupted", "saved", "failed", "hung"]
TAIL_LINES = 15


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The rank that failed first: its exit code (-n or 128+n: killed by signal n), its log, and what it said."""

    rank: int
    exit_code: int | None
    log: Path
    message: str | None = None
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Closing:
    """The facts of an ending.

    `command` is what the user typed, program first; the same command is the same run. `step` is the last finished
    step; `trackers` says per tracker where to look, `tracker_problems` which one was dropped and why.
    """

    ending: Ending
    name: str
    root: Path
    step: int
    steps: int
    command: Sequence[str]
    first_loss: float | None = None
    last_loss: float | None = None
    validation_loss: float | None = None
    seconds: float | None = None
    tokens: int | None = None
    plot: Path | None = None
    checkpoint: Path | None = None
    export: Path | None = None
    trackers: Mapping[str, str] = field(default_factory=dict)
    tracker_problems: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None


def losses_of(rows: Sequence[Row]) -> tuple[float | None, float | None, float | None]:
    """Return the first loss, the last loss and the last validation loss of a run's rows."""
    last = last_per_step(rows)
    train = [value for row in last if (value := number(row, "loss")) is not None]
    validation = [value for row in last if (value := number(row, "validation_loss")) is not None]
    return (train[0] if train else None, train[-1] if train else None, validation[-1] if validation else None)


def tail_of(log: Path, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """Return the last lines of a log, read from its end; an unreadable log has none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 400 * lines))
            content = file.read()
    except OSError:
        return ()
    return tuple(content.decode("utf-8", errors="replace").splitlines()[-lines:])


def with_overrides(command: Sequence[str], overrides: Mapping[str, str]) -> str:
    """Return the command as one would type it, with `overrides` in place of what it said of the same keys."""
    kept = [word for word in command if word.split("=", 1)[0].lstrip("+") not in overrides or "=" not in word]
    return shlex.join([*kept, *(f"{key}={value}" for key, value in overrides.items())])


def closing_lines(closing: Closing) -> list[Text]:
    """Return the lines to show."""
    return [
        *_headline(closing),
        *_failure(closing.failure),
        *_table(_places(closing)),
        *_table([(f"{name} stopped", problem) for name, problem in closing.tracker_problems.items()]),
        *_table(_next(closing)),
    ]


def show_closing(closing: Closing, stream: TextIO | None = None) -> None:
    """Print the closing lines to `stream` (standard output by default)."""
    target = sys.stdout if stream is None else stream
    show_lines(closing_lines(closing), target)


def _headline(closing: Closing) -> list[Text]:
    words = {
        "done": (f"done: {closing.step} steps", "bold green"),
        "finished_before": (f"the run is finished: {closing.step} steps, nothing was started", "bold green"),
        "interrupted": (f"interrupted after step {closing.step} of {closing.steps}", "bold yellow"),
        "saved": (f"saved after step {closing.step} of {closing.steps}, waiting for another attempt", "bold yellow"),
        "failed": (f"failed after step {closing.step} of {closing.steps}", "bold red"),
        "hung": (f"no progress after step {closing.step} of {closing.steps}, the ranks were ended", "bold red"),
    }
    text, style = words[closing.ending]
    facts = [_losses(closing)]
    if closing.seconds is not None:
        facts.append(duration(closing.seconds))
    if closing.tokens:
        facts.append(f"{amount(closing.tokens)} tokens")
    return [Text.assemble((text, style), "".join(f", {fact}" for fact in facts if fact))]


def _losses(closing: Closing) -> str:
    if closing.last_loss is None:
        return ""
    validation = "" if closing.validation_loss is None else f" (validation {loss(closing.validation_loss)})"
    if closing.first_loss is None or closing.ending == "finished_before":
        return f"loss {loss(closing.last_loss)}{validation}"
    return f"loss {loss(closing.first_loss)} -> {loss(closing.last_loss)}{validation}"


def _failure(failure: Failure | None) -> list[Text]:
    if failure is None:
        return []
    who, said = f"rank {failure.rank} ", failure.message or ""
    # Of a rank that left without a word the message tells how it ended, and whose end it is.
    told = said if said.startswith(who) else f"{who}{_how(failure.exit_code)}" + (f": {said}" if said else "")
    lines = [Text(f"  {told}", style="bold")]
    if failure.tail:
        lines.append(Text(f"  the last lines of {failure.log}:"))
        lines += [Text(f"  | {line}", style="dim") for line in failure.tail]
    return lines


def _how(code: int | None) -> str:
    if code is None or code == 0:
        return "ended without saying how"
    number = -code if code < 0 else code - 128
    if number in {sign.value for sign in signal.Signals}:
        return f"was killed by {signal.Signals(number).name}"
    return f"ended with exit code {code}"


def _places(closing: Closing) -> list[tuple[str, str]]:
    log = closing.failure.log if closing.failure else None
    places = (
        ("run", closing.root),
        ("plot", closing.plot),
        ("checkpoint", closing.checkpoint),
        ("export", closing.export),
        ("log", log),
    )
    return [(label, str(path)) for label, path in places if path is not None]


def _next(closing: Closing) -> list[tuple[str, str]]:
    looks = list(closing.trackers.items())
    return [*looks, *_ways_on(closing)]


def _ways_on(closing: Closing) -> list[tuple[str, str]]:
    same = shlex.join(closing.command)
    anew = ("start anew", with_overrides(closing.command, {"run.fresh": "true"}))
    if closing.ending in ("done", "finished_before"):
        longer = {"run.name": closing.name, "training.steps": str(2 * closing.steps), "resume": "must"}
        ways = [("train longer", with_overrides(closing.command, longer))] if closing.checkpoint else []
        return [*ways, anew] if closing.ending == "finished_before" else ways
    if closing.ending == "failed" and closing.checkpoint is None:
        return [("try again", same)]
    return [("go on", same)] if closing.checkpoint else [("start over", same)]


def _table(pairs: list[tuple[str, str]]) -> list[Text]:
    return [Text.assemble((f"  {label + ': ':<14}", "cyan"), text) for label, text in pairs]
