"""A plan as Markdown, to paste into a page or a request for machine time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from primus_hydra.config.key_table import plain
from primus_hydra.ui import plan_projection as texts
from primus_hydra.ui import plan_words as words
from primus_hydra.ui.plan_view import PlanView
from primus_hydra.ui.plan_view_projection import ProjectionPart


def plan_markdown(view: PlanView) -> str:
    """Return one plan as Markdown that ends with a line feed."""
    return "\n".join(_parts(view))


def _parts(view: PlanView) -> Iterator[str]:
    yield f"# Plan of {view.run.name}\n"
    yield _table(("", "what"), words.facts(view))
    if view.projection is not None:
        yield from _projection(view.projection)
    yield _part(
        words.values_title(view),
        ("key", "value", "source"),
        [(_code(line.key), _code(plain(line.value)), words.source_words(line)) for line in view.values],
    )
    if view.hooks:
        yield _part(
            "hooks, which a plan does not run",
            ("when", "name", "what", "time"),
            [(hook.phase, hook.name, _code(hook.what), f"at most {hook.timeout_s:g} s") for hook in view.hooks],
        )
    if view.submission is not None:
        yield f"## Script for Slurm\n\n{_fenced(view.submission.script)}"
    yield f"## Process that is started\n\n{words.how_words(view)}\n\n```sh\n{shlex.join(view.launch.argv)}\n```\n"
    yield _part(
        "environment of every rank",
        ("variable", "value", "reason"),
        [(_code(v.name), _code(v.value), v.reason) for v in view.launch.environment],
    )
    yield from _ranks(view)
    yield from _patches(view)
    if view.notes:
        yield _part(
            "notes", ("about", "what", "how to mend it"), [(n.key or "", n.what, n.hint or "") for n in view.notes]
        )


def _projection(projection: ProjectionPart) -> Iterator[str]:
    rules, memory = projection.rules, projection.memory
    rows = texts.rule_rows(rules)
    head = ("what", "why") if len(rows[0]) == 2 else ("", "what", "why")
    yield _part(texts.rules_title(rules), head, rows)
    yield _part(texts.memory_title(memory), texts.memory_head(memory), texts.memory_rows(memory))
    if notes := texts.memory_notes(memory):
        yield "\n".join(f"- {note.strip()}" for note in notes) + "\n"
    if projection.speed is not None:
        yield _part(texts.speed_title(projection.speed), ("", "what"), texts.speed_rows(projection))
    yield _part("where these numbers come from", ("number", "source"), texts.source_rows(projection))


def _ranks(view: PlanView) -> Iterator[str]:
    shown, more = words.listed_ranks(view.launch.ranks)
    rows = [
        (
            str(rank.rank),
            str(rank.node),
            words.own_words(rank, " ".join(_code(f"{v.name}={v.value}") for v in rank.environment)),
            _code(shlex.join(rank.argv)),
        )
        for rank in shown
    ]
    yield _part("ranks", ("rank", "node", "own variables and CPUs", "command"), rows)
    if more:
        yield f"{more}\n"


def _patches(view: PlanView) -> Iterator[str]:
    chosen, more = words.listed_patches(view)
    if chosen:
        rows = [(_code(p.id), p.phase, p.status, p.reason, p.why) for p in chosen]
        yield _part("patches", ("patch", "phase", "status", "when", "why"), rows)
    if more:
        yield f"{more}\n"


def _part(title: str, head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    return f"## {title[0].upper()}{title[1:]}\n\n{_table(head, rows)}"


def _fenced(script: str) -> str:
    """Return a script as a block; a configuration that holds a fence gets a longer one around it."""
    fence = "```"
    while fence in script:
        fence += "`"
    return f"{fence}sh\n{script}{fence}\n"


def _table(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`" if text and "`" not in text else text
