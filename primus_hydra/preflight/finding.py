"""What tests found on a node, and the verdict that follows. Pure data, which travels between nodes as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Word = Literal["pass", "fail", "unknown", "skip"]
"""`unknown`: the test could not be made where it should have been; `skip`: there is nothing to test here."""
Verdict = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One test on one node: `detail` says what was seen, `value` and `limit` in `unit` where it is a number.

    `weak`: that it is unknown does not make the node's verdict unknown.
    """

    test: str
    word: Word
    detail: str = ""
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    weak: bool = False

    @property
    def reason(self) -> str:
        """One line: the test and what was seen."""
        return f"{self.test}: {self.detail}" if self.detail else self.test


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """Everything about one node."""

    host: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Failed if any test failed, unknown if one that counts could not be made, else passed."""
        if any(finding.word == "fail" for finding in self.findings):
            return "fail"
        return "unknown" if any(one.word == "unknown" and not one.weak for one in self.findings) else "pass"

    @property
    def reasons(self) -> list[str]:
        """What led to the verdict; empty for a node that passed."""
        verdict = self.verdict
        found = [one for one in self.findings if one.word == verdict and not (verdict == "unknown" and one.weak)]
        return [] if verdict == "pass" else [finding.reason for finding in found]

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the verdict with it."""
        return {
            "host": self.host,
            "verdict": self.verdict,
            "reasons": self.reasons,
            "findings": [asdict(finding) for finding in self.findings],
            "facts": dict(self.facts),
        }


def read_findings(data: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Read what `asdict` made of findings."""
    return tuple(Finding(**one) for one in data)


def at_least(test: str, value: float, limit: float | None, unit: str, detail: str = "") -> Finding:
    """Judge a number that must not be below a limit; without a limit it passes and is only told."""
    low = limit is not None and not value >= limit
    words = f"{value:.3g} {unit}{f', below {limit:.3g}' if low and limit is not None else ''}"
    said = f"{detail}: {words}" if detail else words
    return Finding(test=test, word="fail" if low else "pass", detail=said, value=value, limit=limit, unit=unit)


def at_most(test: str, value: float, limit: float | None, unit: str, detail: str = "") -> Finding:
    """Judge a number that must not be above a limit."""
    high = limit is not None and not value <= limit
    words = f"{value:.3g} {unit}{f', above {limit:.3g}' if high and limit is not None else ''}"
    said = f"{detail}: {words}" if detail else words
    return Finding(test=test, word="fail" if high else "pass", detail=said, value=value, limit=limit, unit=unit)
