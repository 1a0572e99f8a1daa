"""What can still be said of a preflight whose first node did not come to its end. Pure but for reading its folder.

A node that never came is a failure, as is the first one if it hangs; what was found before the end counts, and a node
that was there and that nobody can judge any more is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from primus_hydra.measure.beat import HERE
from primus_hydra.preflight.finding import Finding, NodeReport, read_findings
from primus_hydra.preflight.report import PROGRESS, Preflight, read_preflight
from primus_hydra.run.atomic import read_json, write_json

ALONE = "alone"
"""Folder with what nodes found out about themselves when the first node did not answer."""


def note_alone(folder: Path, report: NodeReport) -> None:
    """Leave word of a node that could not tell the first one."""
    write_json(folder / ALONE / f"{report.host}.json", report.to_json())


def salvage(folder: Path, hosts: Sequence[str], empty: Preflight, why: str, hung: str | None = None) -> Preflight:
    """Return a report on `hosts` from what lies in the folder of the preflight.

    `why` is what ended it, and `hung` the node that is to blame for it, if one is.
    """
    progress = read_preflight(folder / PROGRESS)
    known = {node.host: node for node in progress.nodes} if progress is not None else {}
    nodes = tuple(_node(folder, host, known.get(host), why, hung=host == hung) for host in hosts)
    return replace(progress or empty, nodes=nodes, complete=False)


def _node(folder: Path, host: str, known: NodeReport | None, why: str, *, hung: bool) -> NodeReport:
    found = known or NodeReport(host=host)
    if hung:
        return replace(found, findings=(Finding(test="answer", word="fail", detail=why), *found.findings))
    alone = read_json(folder / ALONE / f"{host}.json")
    if alone is None and (found.findings or (folder / HERE / host).exists()):
        ended = Finding(test="answer", word="unknown", detail=f"{why}: what was not tested by then is unknown")
        return replace(found, findings=(*found.findings, ended))
    if alone is None:
        return NodeReport(host=host, findings=(Finding(test="answer", word="fail", detail=f"no word of it; {why}"),))
    findings, facts = alone["findings"], alone["facts"]
    assert isinstance(findings, list)
    assert isinstance(facts, dict)
    first = Finding(test="answer", word="unknown", detail="the first node did not answer it")
    return NodeReport(host=host, facts=facts, findings=(*read_findings(findings), first))
