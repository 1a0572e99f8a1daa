"""A plan for a terminal: sections of aligned columns, never wrapped, so that it can be searched and compared."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from primus_hydra.config.key_table import plain
from primus_hydra.ui import plan_projection as texts
from primus_hydra.ui import plan_words as words
from primus_hydra.ui.plan_view import PlanView, RankLine, Variable
from primus_hydra.ui.plan_view_projection import ProjectionPart

_WIDEST_COLUMN = 60


def plan_text(view: PlanView) -> str:
    """Return one plan as text that ends with a line feed."""
    return "".join(f"{line}\n" for line in _lines(view))


def _lines(view: PlanView) -> Iterator[str]:
    yield from columns(words.facts(view))
    if view.projection is not None:
        yield from _projection(view.projection)
    yield from _section(words.values_title(view), _values(view))
    yield from _section("hooks, which a plan does not run", _hooks(view))
    if view.submission is not None:
        yield from _section("srun, in the script for Slurm", [shlex.join(view.submission.srun)])
        yield from _section("script for Slurm", view.submission.script.splitlines())
    yield from _section(f"process that is started ({words.how_words(view)})", [shlex.join(view.launch.argv)])
    yield from _section("environment of every rank", _variables(view.launch.environment))
    yield from _section("ranks", _ranks(view.launch.ranks, view.launch.argv))
    yield from _section("patches", _patches(view))
    yield from _section("notes", _notes(view))


def _projection(projection: ProjectionPart) -> Iterator[str]:
    yield from _section(texts.rules_title(projection.rules), columns(texts.rule_rows(projection.rules)))
    memory = projection.memory
    table = columns([texts.memory_head(memory), *texts.memory_rows(memory)])
    yield from _section(texts.memory_title(memory), [*table, *texts.memory_notes(memory)])
    if projection.speed is not None:
        yield from _section(texts.speed_title(projection.speed), columns(texts.speed_rows(projection)))
    yield from _section("where these numbers come from", columns(texts.source_rows(projection)))


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", title, *(f"  {line}" for line in lines))


def _values(view: PlanView) -> list[str]:
    return columns([(line.key, plain(line.value), words.source_words(line)) for line in view.values])


def _variables(variables: Sequence[Variable]) -> list[str]:
    return columns([(f"{v.name}={shlex.quote(v.value) if v.value else ''}", v.reason) for v in variables])


def _ranks(ranks: tuple[RankLine, ...], started: tuple[str, ...]) -> list[str]:
    shown, more = words.listed_ranks(ranks)
    common = {rank.argv for rank in ranks}
    lines = [f"each runs: {shlex.join(ranks[0].argv)}"] if len(common) == 1 and ranks[0].argv != started else []
    rows = []
    for rank in shown:
        variables = " ".join(f"{v.name}={shlex.quote(v.value)}" for v in rank.environment)
        own = words.own_words(rank, variables) or "has no variable of its own"
        rows.append((f"rank {rank.rank}", f"node {rank.node}", own))
        if len(common) > 1:
            rows.append(("", "", shlex.join(rank.argv)))
    return [*lines, *columns(rows), *([more] if more else [])]


def _hooks(view: PlanView) -> list[str]:
    return columns([(hook.phase, hook.name, hook.what, f"at most {hook.timeout_s:g} s") for hook in view.hooks])


def _patches(view: PlanView) -> list[str]:
    chosen, more = words.listed_patches(view)
    lines = []
    for patch in chosen:
        lines += [f"{patch.id} ({patch.phase}): {patch.status}", f"    when: {patch.reason}", f"    why: {patch.why}"]
    return [*lines, *([more] if more else [])]


def _notes(view: PlanView) -> list[str]:
    lines = []
    for note in view.notes:
        lines.append(f"{note.key}: {note.what}" if note.key else note.what)
        lines += [f"    {line}" for line in (note.hint or "").splitlines()]
    return lines


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align rows of equal length; a cell that is too wide pushes its own row only."""
    if not rows:
        return []
    widths = [
        max((len(row[i]) for row in rows if len(row[i]) <= _WIDEST_COLUMN), default=0) for i in range(len(rows[0]))
    ]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
