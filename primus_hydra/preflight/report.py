"""A preflight for people and programs: a table, JSON, Markdown, and lists of nodes for Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus_hydra.preflight.finding import Finding, NodeReport, Verdict, read_findings
from primus_hydra.preflight.names import TESTS
from primus_hydra.run.atomic import read_json, write_json, write_text

REPORT = "report.json"
PROGRESS = "progress.json"
LISTS: Mapping[Verdict, str] = {
    "pass": "passing_nodes.txt",
    "fail": "failing_nodes.txt",
    "unknown": "unknown_nodes.txt",
}
_ORDER: Mapping[Verdict, int] = {"fail": 0, "unknown": 1, "pass": 2}
_MOST_REASONS = 3


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """All nodes of a preflight; `seconds` it took, `remarks` that are about no node alone."""

    suite: str
    tests: tuple[str, ...]
    platform: str
    nodes: tuple[NodeReport, ...]
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0
    complete: bool = True

    @property
    def passed(self) -> bool:
        """Whether every node has passed."""
        return all(node.verdict == "pass" for node in self.nodes)

    def hosts(self, verdict: Verdict) -> list[str]:
        """Return the nodes with a verdict."""
        return [node.host for node in self.nodes if node.verdict == verdict]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "suite": self.suite,
            "tests": list(self.tests),
            "platform": self.platform,
            "passed": self.passed,
            "complete": self.complete,
            "seconds": round(self.seconds, 1),
            "passing": self.hosts("pass"),
            "failing": self.hosts("fail"),
            "unknown": self.hosts("unknown"),
            "remarks": list(self.remarks),
            "nodes": [node.to_json() for node in self.nodes],
        }


def read_preflight(path: Path) -> Preflight | None:
    """Read what `to_json` wrote; None if it is not there or something else."""
    data = read_json(path)
    try:
        return None if data is None else _preflight(data)
    except (KeyError, TypeError):
        return None


def write_report(found: Preflight, folder: Path) -> None:
    """Write the report into a folder: JSON last, as it says that the rest is there."""
    for verdict, name in LISTS.items():
        write_text(folder / name, "".join(f"{host}\n" for host in found.hosts(verdict)))
    write_text(folder / "report.md", "\n".join(markdown_lines(found)) + "\n")
    write_json(folder / REPORT, found.to_json())


def text_lines(found: Preflight) -> Iterator[str]:
    """Yield the table for a terminal: the bad nodes first, each with its reasons."""
    yield f"preflight {found.suite}: {_counts(found)}{'' if found.complete else ' (it did not come to its end)'}"
    width = max(len(node.host) for node in found.nodes)
    for node in _sorted(found.nodes):
        yield f"  {node.host:<{width}}  {node.verdict:<7}  {_numbers(node)}".rstrip()
        yield from (f"  {'':<{width}}           {reason}" for reason in _shown_reasons(node))
    yield from (f"  note: {remark}" for remark in found.remarks)


def facts_lines(found: Preflight) -> Iterator[str]:
    """Yield the facts of every node for a terminal."""
    for node in found.nodes:
        yield f"{node.host}:"
        for part, facts in node.facts.items():
            yield f"  {part}"
            yield from (
                f"    {name:<14} {_words(value)}" for name, value in facts.items() if value not in (None, [], {})
            )


def markdown_lines(found: Preflight) -> Iterator[str]:
    """Yield the report as Markdown: a table of nodes and tests, the reasons, the facts."""
    tests = [test for test in TESTS if test in found.tests]
    yield f"# Preflight `{found.suite}` on {found.platform}"
    yield ""
    yield f"{_counts(found)} in {found.seconds:.0f} s."
    yield ""
    yield f"| node | verdict | {' | '.join(tests)} |"
    yield f"|---|---|{'---|' * len(tests)}"
    for node in _sorted(found.nodes):
        cells = [_cell([one for one in node.findings if one.test == test]) for test in tests]
        yield f"| {node.host} | **{node.verdict}** | {' | '.join(cells)} |"
    yield from _markdown_rest(found)


def _markdown_rest(found: Preflight) -> Iterator[str]:
    reasons = [f"- **{node.host}**: {reason}" for node in _sorted(found.nodes) for reason in node.reasons]
    if reasons:
        yield from ("", "## Why", "", *reasons)
    if found.remarks:
        yield from ("", "## Notes", "", *(f"- {remark}" for remark in found.remarks))
    yield from ("", "## Facts", "", "```")
    yield from facts_lines(found)
    yield "```"


def _counts(found: Preflight) -> str:
    counted = [f"{len(hosts)} {word}" for word in _ORDER if (hosts := found.hosts(word))]
    return f"{len(found.nodes)} node{'s' if len(found.nodes) > 1 else ''}: {', '.join(reversed(counted))}"


def _sorted(nodes: Sequence[NodeReport]) -> list[NodeReport]:
    return sorted(nodes, key=lambda node: _ORDER[node.verdict])


def _shown_reasons(node: NodeReport) -> list[str]:
    reasons = node.reasons
    more = [f"and {len(reasons) - _MOST_REASONS} more"] if len(reasons) > _MOST_REASONS else []
    return [*reasons[:_MOST_REASONS], *more]


def _numbers(node: NodeReport) -> str:
    """Return the rates that were measured, as far as they tell something beside the reasons."""
    rates = [one for one in node.findings if one.value is not None and one.unit in ("TFLOP/s", "GB/s")]
    return ", ".join(f"{one.test} {one.value:.3g} {one.unit}" for one in rates)


def _cell(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    worst = min(findings, key=lambda one: ("fail", "unknown", "pass", "skip").index(one.word))
    value = f" {worst.value:.3g} {worst.unit}" if worst.value is not None and worst.unit else ""
    return f"{worst.word}{value}"


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list):
        return "; ".join(_words(item) for item in value)
    return str(value)


def _preflight(data: Mapping[str, Any]) -> Preflight:
    return Preflight(
        suite=data["suite"],
        tests=tuple(data["tests"]),
        platform=data["platform"],
        nodes=tuple(
            NodeReport(host=node["host"], facts=node["facts"], findings=read_findings(node["findings"]))
            for node in data["nodes"]
        ),
        remarks=tuple(data["remarks"]),
        seconds=data["seconds"],
        complete=data["complete"],
    )
