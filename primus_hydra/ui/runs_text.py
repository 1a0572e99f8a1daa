"""Runs as text: the list, one run, the difference of two. Built from what `primus_hydra.run` found; reads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from primus_hydra.config.key_table import plain
from primus_hydra.run.condition import Condition
from primus_hydra.run.difference import Difference, Side
from primus_hydra.run.history import AttemptRecord, RankPlace
from primus_hydra.run.listing import RunSummary
from primus_hydra.run.metrics import Row, number
from primus_hydra.run.overview import CheckpointRecord, RunOverview
from primus_hydra.run.submission import JobStanding
from primus_hydra.ui.words import amount, duration, loss

_HEAD = ("run", "state", "step", "loss", "attempts", "restarts", "last news", "goodput")
_LEFT_ALIGNED = 2
_LABEL_WIDTH = 14
_SHOWN_STEPS = 8


def list_lines(runs: Sequence[RunSummary], base: Path, *, now: float) -> Iterator[str]:
    """Return a table with one line for each run."""
    if not runs:
        yield f"there are no runs in {base}; run.dir=FOLDER shows those of another folder"
        return
    rows = [_HEAD, *(_list_row(run, now) for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = (_aligned(text, width, place) for place, (text, width) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()


def headline(name: str, condition: Condition, step: int | None = None) -> str:
    """Return in one line how a run stands; `step` is the last finished one where that is known better."""
    state = condition.state
    reached = step if step is not None else state.step if state else None
    after = "" if reached is None else f" after step {_of(reached, state.steps if state else None)}"
    message = f": {state.message}" if state and state.message else ""
    holder = condition.holder or "its launcher"
    job = condition.job
    words = {
        "queued": f"queued{after}: {_job(job)}",
        "cancelled": f"its job is gone before an attempt began: {_job(job)}; task.action=logs shows what it said",
        "starting": "starting",
        "running": f"running{after}, attempt {condition.attempt}",
        "silent": f"silent{after}: {holder} cannot be seen from this machine, and the run has written nothing for long",
        "saved": f"saved{message}; it waits for another attempt",
        "finished": state.message if state and state.message else f"finished{after}",
        "failed": f"failed{after} with exit code {state.exit_code if state else None}{message}",
        "interrupted": f"interrupted{after}{message}",
        "died": f"died{after}: {holder} is gone and has not said how the run ended",
        "unknown": "unknown: its state cannot be read",
    }
    return f"{name}: {words[condition.word]}"


def overview_lines(overview: RunOverview, *, now: float) -> Iterator[str]:
    """Return all that is known of one run."""
    condition = overview.condition
    yield headline(overview.name, condition, overview.step)
    measured = ", ".join(_measured(overview.row))
    yield from _labelled("measured", [measured] if measured else [])
    yield from _labelled("last news", [_ago(condition.news_at, now)] if condition.news_at is not None else [])
    yield from _labelled("launcher", [str(condition.holder)] if condition.live and condition.holder else [])
    yield from _labelled("job", [_job(condition.job)] if condition.job else [])
    yield from _labelled("attempts", [_attempt(record) for record in overview.attempts])
    hangs = [f"attempt {record.number}: {record.hang}" for record in overview.attempts if record.hang]
    yield from _labelled("last hang", hangs[-1:])
    yield from _labelled("ranks", [_rank(place, now) for place in overview.ranks])
    yield from _labelled("goodput", [overview.goodput.describe().removeprefix("goodput ")] if overview.goodput else [])
    yield from _labelled("checkpoints", _checkpoints(overview.checkpoints))
    yield from _labelled("not saved", [overview.unsaved.describe()] if overview.unsaved else [])
    yield from _labelled("directory", [str(overview.root)])
    if overview.command is not None:
        yield from _labelled("overrides", [" ".join(overview.command.overrides) or "none"])


def difference_lines(left: str, right: str, differences: Sequence[Difference]) -> Iterator[str]:
    """Return every difference with its sources, those that determine the training first."""
    decisive = [found for found in differences if found.determining]
    others = [found for found in differences if not found.determining]
    if not differences:
        yield f"the configurations of {left} and {right} are equal"
    for title, part in (("these determine the training", decisive), ("these do not", others)):
        if part:
            yield f"{title}:"
            for found in part:
                yield from _difference(found, left, right)


def _job(job: JobStanding | None) -> str:
    """Return what is known of a job: its number, where it runs or why it waits, and how often it was requeued."""
    if job is None:
        return "no job is known"
    look = job.look
    if look.word == "unknown":
        return f"{job.submission.job_id}, Slurm cannot be asked for it ({look.reason})"
    state = look.state.lower() or "gone from Slurm's queue"
    nodes = f" on {look.nodes}" if look.nodes else f" for {job.submission.nodes} node(s)"
    reason = f" ({look.reason})" if look.reason else ""
    again = f", requeued {look.restarts} time{'s' if look.restarts > 1 else ''}" if look.restarts else ""
    return f"{job.submission.job_id}, {state}{nodes}{reason}{again}"


def _list_row(run: RunSummary, now: float) -> tuple[str, ...]:
    return (
        run.name,
        f"{run.word} ({run.job.submission.job_id})" if run.job and run.job.look.live else run.word,
        "-" if run.step is None else _of(run.step, run.steps),
        "-" if run.loss is None else loss(run.loss),
        str(run.attempts),
        str(run.restarts),
        "-" if run.news_at is None else _ago(run.news_at, now),
        "-" if run.goodput is None else f"{run.goodput:.0%}",
    )


def _aligned(text: str, width: int, place: int) -> str:
    return text.ljust(width) if place < _LEFT_ALIGNED else text.rjust(width)


def _of(step: int, steps: int | None) -> str:
    return str(step) if steps is None else f"{step}/{steps}"


def _ago(moment: float, now: float) -> str:
    return f"{duration(max(0.0, now - moment))} ago"  # a clock that was set back makes news of the future


def _measured(row: Row) -> Iterator[str]:
    shown = (
        ("loss", "loss", loss),
        ("validation_loss", "validation loss", loss),
        ("lr", "lr", "{:.4g}".format),
        ("tokens_per_s", "tokens/s", amount),
        ("step_time_s", "s/step", "{:.3g}".format),
        ("mfu", "MFU", "{:.1%}".format),
        ("memory_gib", "GiB", "{:.1f}".format),
    )
    for name, label, words in shown:
        value = number(row, name)
        if value is not None:
            yield f"{label} {words(value)}"


def _attempt(record: AttemptRecord) -> str:
    facts = [
        "" if record.exit_code is None else f"exit code {record.exit_code}",
        "" if record.seconds is None else f"after {duration(record.seconds)}",
        f"{record.restarts} restart{'s' if record.restarts > 1 else ''}" if record.restarts else "",
    ]
    told = ", ".join(fact for fact in facts if fact)
    return (
        f"{record.number}  {record.word}"
        + (f" ({told})" if told else "")
        + (f": {record.cause}" if record.cause else "")
    )


def _rank(place: RankPlace, now: float) -> str:
    step = "before the first step" if place.step < 0 else f"step {place.step}"
    silent = f"silent for {duration(place.silent_s)}"
    return f"{place.rank}  {place.section}, {step}, {silent} ({place.node}, {_ago(place.time, now)})"


def _checkpoints(records: Sequence[CheckpointRecord]) -> Iterator[str]:
    complete = [str(record.step) for record in records if record.word == "complete"]
    more = f"{len(complete) - _SHOWN_STEPS} older and " if len(complete) > _SHOWN_STEPS else ""
    yield f"complete: {more}{', '.join(complete[-_SHOWN_STEPS:])}" if complete else "none is complete"
    for record in records:
        if record.word != "complete":
            yield f"{record.word}: {record.path.name}" + (f" ({record.reason})" if record.reason else "")


def _labelled(label: str, lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    for place, line in enumerate(lines):
        yield f"  {label + ':' if place == 0 else '':<{_LABEL_WIDTH}}{line}"


def _difference(found: Difference, left: str, right: str) -> Iterator[str]:
    width = max(len(left), len(right))
    values = [_value(found.left), _value(found.right)]
    yield f"  {found.leaf}"
    for name, value, side in zip((left, right), values, (found.left, found.right), strict=True):
        yield f"    {name:<{width}}  {value:<{max(map(len, values))}}  {side.source if side.present else ''}".rstrip()


def _value(side: Side) -> str:
    return plain(side.value) if side.present else side.source
