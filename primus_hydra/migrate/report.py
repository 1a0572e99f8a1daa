"""What a migration tells: totals, every key that is not simply translated with its reason, and what the plan says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from primus_hydra.config.key_table import plain
from primus_hydra.errors import Problem
from primus_hydra.migrate.ledger import FATES, REPORTED, Entry

_HEADINGS: Final = {
    "changed": "Changed meaning",
    "dead": "Dead: no part of the training read it",
    "unsupported": "Not here",
    "unknown": "Unknown",
    "passed": "Passed to the backend",
    "translated": "Translated",
}
_WORDS: Final = {
    "translated": "translated",
    "passed": "passed to the backend",
    "default": "defaults there, nothing to write",
    "changed": "changed in meaning",
    "dead": "dead",
    "unsupported": "not here",
    "unknown": "unknown",
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """`filled` are our keys that only follow from defaults of the other launcher; `refused` is what `task=plan` would
    refuse (`planned`: it was asked), `missing` are paths that are not on this machine."""

    title: str
    output: str | None
    entries: tuple[Entry, ...]
    filled: tuple[str, ...]
    notes: tuple[str, ...]
    planned: bool
    refused: tuple[Problem, ...]
    missing: tuple[Problem, ...]
    experiment: str

    @property
    def totals(self) -> dict[str, int]:
        """Return the number of keys of each fate, and of all keys."""
        counted = Counter(entry.fate for entry in self.entries)
        return {"keys": len(self.entries), **{fate: counted[fate] for fate in FATES}}


def as_json(report: Report) -> dict[str, Any]:
    """Return plain data."""
    return {
        "recipe": report.title,
        "output": report.output,
        "totals": report.totals,
        "filled": list(report.filled),
        "entries": [asdict(entry) for entry in report.entries],
        "notes": list(report.notes),
        "refused": [asdict(problem) for problem in report.refused],
        "missing": [asdict(problem) for problem in report.missing],
        "experiment": report.experiment,
    }


def as_text(report: Report) -> Iterator[str]:
    """Yield the lines for a reader."""
    yield f"{report.title}: {_totals(report)}"
    for fate in ("translated", "passed"):
        yield from _block(_HEADINGS[fate], [_went(entry) for entry in report.entries if entry.fate == fate])
    for fate in REPORTED:
        yield from _block(_HEADINGS[fate], [_told(entry) for entry in report.entries if entry.fate == fate])
    yield from _block("Notes", report.notes)
    yield from _block("Not on this machine", [_problem(problem) for problem in report.missing])
    yield from _block("task=plan refuses", [_problem(problem) for problem in report.refused])
    yield ""
    yield _outcome(report)


def as_markdown(report: Report) -> Iterator[str]:
    """Yield the lines of a page, with the experiment in it."""
    yield f"# {report.title}"
    yield ""
    yield f"{_totals(report)}."
    for fate in ("passed", *REPORTED):
        entries = [entry for entry in report.entries if entry.fate == fate]
        if entries:
            yield from ("", f"## {_HEADINGS[fate]}", "", "| key | value | becomes | why |", "|---|---|---|---|")
            yield from (_row(entry) for entry in entries)
    for heading, lines in (
        ("Notes", report.notes),
        ("Not on this machine", [_problem(problem) for problem in report.missing]),
        ("task=plan refuses", [_problem(problem) for problem in report.refused]),
    ):
        if lines:
            yield from ("", f"## {heading}", "", *(f"- {line}" for line in lines))
    yield from ("", "## Experiment", "", "```yaml", report.experiment.rstrip("\n"), "```", "", _outcome(report))


def _totals(report: Report) -> str:
    totals = report.totals
    parts = [f"{totals[fate]} {_WORDS[fate]}" for fate in FATES if totals[fate]]
    filled = f"; {len(report.filled)} values written that were defaults there" if report.filled else ""
    return f"{totals['keys']} keys: {', '.join(parts)}{filled}"


def _block(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", f"{heading} ({len(lines)})", *(f"  {line}" for line in lines))


def _went(entry: Entry) -> str:
    """Return one line: where a key went, or why it needs no key here."""
    return f"{entry.name} -> {', '.join(entry.targets) or entry.reason}"


def _told(entry: Entry) -> str:
    went = f" -> {', '.join(entry.targets)}" if entry.targets else ""
    return f"{entry.name}={plain(entry.value)}{went}: {entry.reason} ({entry.where})"


def _row(entry: Entry) -> str:
    cells = (f"`{entry.name}`", f"`{plain(entry.value)}`", ", ".join(f"`{target}`" for target in entry.targets))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, entry.reason or "")) + " |"


def _problem(problem: Problem) -> str:
    said = f"{problem.key}: {problem.what}" if problem.key else problem.what
    return f"{said} ({problem.hint})" if problem.hint else said


def _outcome(report: Report) -> str:
    where = f"{report.output} is written" if report.output else "the experiment is on standard output"
    if report.refused:
        return f"{where}; task=plan refuses it: mend what is listed above"
    if not report.planned:
        return f"{where}; it composes. It is no job by itself: give it beside an experiment (task.runner)"
    return f"{where}; it composes, and task=plan accepts it"
