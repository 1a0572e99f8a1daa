"""The first node conducts the preflight: facts and host tests, devices, then collectives; what failed is left out.

Each stage asks all nodes that still answer, at the same time and in bounded time. Findings are kept by node, and after
every stage the state so far is given to `note`, so that a preflight which dies half-way still tells something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from primus_hydra.config.schema import JobConfig
from primus_hydra.measure.session import Session
from primus_hydra.preflight.devices import DeviceStage
from primus_hydra.preflight.facts import comparable
from primus_hydra.preflight.finding import Finding, NodeReport, at_most, read_findings
from primus_hydra.preflight.names import DEVICE, LOCAL
from primus_hydra.preflight.network_stage import NetworkStage
from primus_hydra.preflight.peers import differing
from primus_hydra.preflight.wanted import Wanted

_COLLECTIVES = ("p2p", "ring", "all_reduce", "all_to_all")

_CLOCK_S = 10.0
"""How long a node may take to say what time it is."""

Note = Callable[[list[NodeReport], list[str]], None]


def conduct(
    session: Session, job: JobConfig, wanted: Wanted, *, say: Callable[[str], None], note: Note
) -> tuple[list[NodeReport], list[str]]:
    """Make all tests; return a report for each node of the job, and remarks that are about none of them alone."""
    return _Conductor(session, job, wanted, say, note).run()


class _Conductor:
    def __init__(
        self, session: Session, job: JobConfig, wanted: Wanted, say: Callable[[str], None], note: Note
    ) -> None:
        self._session = session
        self._job = job
        self._wanted = wanted
        self._say = say
        self._note = note
        self._facts: dict[int, dict[str, Any]] = {}
        self._findings: dict[int, list[Finding]] = {index: [] for index in range(len(session.hosts))}
        self._remarks: list[str] = []

    def run(self) -> tuple[list[NodeReport], list[str]]:
        self._session.join(self._wanted.join_s)
        self._stage("looking at the hosts", self._hosts)
        if self._wanted.wants("clock"):
            self._stage("comparing the clocks", self._clocks)
        ready: tuple[int, ...] = ()
        if self._wanted.wants(*DEVICE, *LOCAL, *_COLLECTIVES):
            devices = DeviceStage(self._session, self._job, self._wanted, self._add)
            self._stage(f"starting {self._wanted.devices} device process(es) on each node", devices.start)
            self._stage("testing the devices", devices.test)
            ready = devices.ready
            for index, seen in devices.seen.items():
                self._facts.setdefault(index, {})["devices"] = seen
        if self._wanted.wants("versions"):
            self._versions()
        if self._wanted.wants(*_COLLECTIVES):
            network = NetworkStage(self._session, self._job, self._wanted, self._add, self._say)
            self._stage("testing the network between the nodes", lambda: network.test(ready))
            self._remarks += network.remarks
        return self._reports(), self._remarks

    def _stage(self, words: str, work: Callable[[], None]) -> None:
        self._say(f"{words} ({len(self._session.nodes)} of {len(self._session.hosts)} nodes)")
        work()
        self._note(self._reports(), self._remarks)

    def _hosts(self) -> None:
        for index, answer in self._session.ask_all({"act": "host"}, self._wanted.limit_s).items():
            if "error" in answer:
                self._add(index, Finding(test="host", word="unknown", detail=str(answer["error"])))
                continue
            self._facts[index] = dict(answer["value"]["facts"])
            self._findings[index] += read_findings(answer["value"]["findings"])

    def _clocks(self) -> None:
        limit = self._job.platform.limits.clock_skew_s
        for index, skew in self._session.clock_skews(min(_CLOCK_S, self._wanted.limit_s)).items():
            self._add(index, at_most("clock", abs(skew), limit, "s", "apart from the first node's"))
        alone = len(self._session.hosts) == 1
        self._add(0, Finding(test="clock", word="skip" if alone else "pass", detail="the first node's own"))

    def _versions(self) -> None:
        known = {self._session.hosts[index]: comparable(facts) for index, facts in self._facts.items()}
        for host, findings in differing(known).items():
            self._findings[self._session.hosts.index(host)] += findings

    def _add(self, index: int, finding: Finding) -> None:
        self._findings[index].append(finding)

    def _reports(self) -> list[NodeReport]:
        return [self._report(index, host) for index, host in enumerate(self._session.hosts)]

    def _report(self, index: int, host: str) -> NodeReport:
        lost: Mapping[int, str] = self._session.lost
        silent = (Finding(test="answer", word="fail", detail=lost[index]),) if index in lost else ()
        return NodeReport(host=host, facts=self._facts.get(index, {}), findings=(*silent, *self._findings[index]))
