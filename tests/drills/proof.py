"""What must hold in every drill, whatever the fault: each function returns complaints, none where all is well."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from primus_hydra.run.checkpoints import complete_steps
from primus_hydra.run.goodput import goodput, read_attempts
from primus_hydra.run.history import read_end
from primus_hydra.run.metrics import Row, number, read_metrics, step_of
from primus_hydra.run.overview import overview_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import read_state
from tests.drills.fault import Expect
from tests.drills.scene import RUN, STEPS, Typed

_BARE = ("lock",)
"""Files that a refused first start may leave."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One command of a drill when it has ended: what `task=runs` calls the run, and the newest saved step."""

    typed: Typed
    word: str | None
    saved: int
    attempts: int
    restarts: int


def look(paths: RunPaths, typed: Typed, ask: Callable[[], str | None] = lambda: None) -> Leg:
    """Look at a run after a command; `ask` may know better what `task=runs` calls it: by asking there."""
    there = paths.state.exists()
    overview = overview_of(RUN, paths.root)
    return Leg(
        typed=typed,
        word=(ask() or overview.condition.word) if there else None,
        saved=max(complete_steps(paths), default=0),
        attempts=len(paths.attempt_numbers()),
        restarts=overview.attempts[-1].restarts if overview.attempts else 0,
    )


def seen_line(says: str, output: str) -> str | None:
    """Return the first line of an output that a pattern is found in."""
    return next((line.strip() for line in output.splitlines() if re.search(says, line)), None)


def end_complaints(expect: Expect, leg: Leg, paths: RunPaths, *, attempts_before: int) -> Iterator[str]:
    """Compare the end of a command, and what the run says of it, with what is expected."""
    if leg.typed.code != expect.code:
        yield f"exit code {leg.typed.code} instead of {expect.code}:\n{leg.typed.output[-3000:]}"
    if leg.word != expect.word:
        yield f"task=runs calls the run {leg.word!r} instead of {expect.word!r}"
    if seen_line(expect.says, leg.typed.output) is None:
        yield f"no line says {expect.says!r}:\n{leg.typed.output[-3000:]}"
    if leg.attempts != attempts_before + expect.begins:
        yield f"{leg.attempts} attempts instead of {attempts_before + expect.begins}"
    if expect.begins:
        yield from _record_complaints(expect, leg, paths)


def _record_complaints(expect: Expect, leg: Leg, paths: RunPaths) -> Iterator[str]:
    """The files of the run must tell what the exit code told; a launcher that was killed can have told nothing."""
    state, end = read_state(paths.state), read_end(paths.attempt(leg.attempts).ended)
    code = leg.typed.code if expect.run_code is None else expect.run_code
    if leg.restarts != expect.restarts:
        yield f"{leg.restarts} restarts instead of {expect.restarts}"
    if state is None or state.attempt != leg.attempts:
        yield f"state.json is not of attempt {leg.attempts}: {state}"
    elif expect.word == "died":
        if state.status != "running" or end is not None:
            yield f"the launcher was killed, but the run says {state.status} and {end}"
    elif end is None:
        yield "ended.json is missing"
    elif {state.exit_code, end.exit_code} != {code} or {state.status, end.status} != {expect.word}:
        yield f"state.json says {state.status} {state.exit_code}, ended.json {end.status} {end.exit_code}"
    elif state.step != end.step or state.step < leg.saved:
        yield f"step {state.step} in state.json, {end.step} in ended.json, {leg.saved} saved"


def starts_of(rows: Sequence[Row]) -> list[list[int]]:
    """Return the steps that each start of the ranks logged, in order."""
    groups = groupby(rows, key=lambda row: (row.get("attempt"), row.get("restart")))
    return [[step for row in group if (step := step_of(row)) is not None] for _, group in groups]


def repeated_steps(rows: Sequence[Row]) -> int:
    """Return how many logged steps were done again."""
    steps = [step for start in starts_of(rows) for step in start]
    return len(steps) - len(set(steps))


def work_complaints(rows: Sequence[Row], resumes_after: int, *, restarted: bool) -> Iterator[str]:
    """Nothing but the steps since the last save may be done again, and none may be left out."""
    starts = starts_of(rows)
    if restarted and len(starts) < 2 and resumes_after:
        yield "the ranks logged only one start"
    last = starts[-1] if starts else []
    if not last or last[0] != resumes_after + 1:
        yield f"training went on with step {last[0] if last else None} instead of {resumes_after + 1}"
    if last and last != list(range(last[0], STEPS + 1)):
        yield f"the last start logged the steps {last}"


def loss_complaints(rows: Sequence[Row], straight: Mapping[int, float]) -> Iterator[str]:
    """Every loss that was ever logged is the undisturbed run's, bit by bit; and all of them are there."""
    for row in rows:
        step, loss = step_of(row), number(row, "loss")
        if step is None or loss != straight.get(step):
            yield f"the loss of step {step} is {loss}, undisturbed {straight.get(step or 0)}: {row}"
    if missing := set(straight) - {step_of(row) for row in rows}:
        yield f"no loss of the steps {sorted(missing)}"


def goodput_complaints(paths: RunPaths) -> Iterator[str]:
    """The account of the time must be one: no part of it is negative, and the parts add up."""
    account = goodput(read_attempts(paths), read_metrics(paths.metrics))
    if account is None:
        yield "no account of the time"
        return
    parts = {name: value for name, value in account.to_json().items() if name not in ("wall", "share")}
    if account.wall <= 0 or min(parts.values()) < 0 or not 0 <= account.share <= 1:
        yield f"the account of the time makes no sense: {account}"
