"""The tests between nodes: pairs, a ring, collectives over all; and the search for the node that makes one fail."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from primus_hydra.config.schema import JobConfig
from primus_hydra.measure.groups import Ask, Measured, measure, measure_groups
from primus_hydra.measure.session import Session
from primus_hydra.preflight.bisect import Search, find_bad
from primus_hydra.preflight.devices import Add
from primus_hydra.preflight.finding import Finding, at_least
from primus_hydra.preflight.limits import network_limit
from primus_hydra.preflight.peers import best_of_pairs, pair_rounds, slow_among
from primus_hydra.preflight.wanted import Wanted

TESTS = ("p2p", "ring", "all_reduce", "all_to_all")


class NetworkStage:
    """Measures between nodes that have working devices."""

    def __init__(self, session: Session, job: JobConfig, wanted: Wanted, add: Add, say: Callable[[str], None]) -> None:
        self._session = session
        self._job = job
        self._wanted = wanted
        self._add = add
        self._say = say
        self._pairs: dict[tuple[str, str], float] | None = None
        self._pair_errors: dict[str, str] = {}
        self._bad: set[int] = set()
        self.remarks: list[str] = []

    def test(self, ready: Sequence[int]) -> None:
        """Make the tests that were asked for over the nodes that are `ready`; the others are unknown."""
        wanted = [test for test in TESTS if self._wanted.wants(test)]
        for index in range(len(self._session.hosts)):
            if index not in ready and index not in self._session.lost:
                self._skip(index, wanted, "unknown", "its devices do not work")
        if len(self._session.hosts) == 1 or len(ready) < 2:
            word = "skip" if len(self._session.hosts) == 1 else "unknown"
            for index in ready:
                self._skip(index, wanted, word, "there is no other node to talk to")
            return
        for test in wanted:
            if test == "p2p":
                self._p2p(ready)
            else:
                self._over_all(test, ready)

    def _skip(self, index: int, tests: Sequence[str], word: str, why: str) -> None:
        for test in tests:
            self._add(index, Finding(test=test, word="skip" if word == "skip" else "unknown", detail=why))

    def _p2p(self, ready: Sequence[int]) -> None:
        pairs = self._measured_pairs(ready)
        best = best_of_pairs(pairs)
        limit = network_limit(self._job.platform, "p2p")
        slow = slow_among(best, self._job.platform.limits.peer_fraction)
        for index in ready:
            host = self._session.hosts[index]
            if index in self._session.lost:
                continue
            if not best.get(host):
                self._bad.add(index)
                self._add(index, Finding(test="p2p", word="fail", detail=self._pair_errors.get(host, "no pair worked")))
                continue
            bound = max([one for one in (limit, slow.get(host)) if one is not None], default=None)
            finding = at_least("p2p", best[host], bound, "GB/s", "its best pair")
            self._bad |= {index} if finding.word == "fail" else set()
            self._add(index, finding)
        self._remark_on_paths(pairs, best)

    def _remark_on_paths(self, pairs: dict[tuple[str, str], float], best: dict[str, float]) -> None:
        """Tell of pairs that are slow although both nodes are fast elsewhere: the path is to blame, no node."""
        fraction = self._job.platform.limits.peer_fraction
        for (one, other), value in pairs.items():
            if value < fraction * min(best[one], best[other]):
                self.remarks.append(
                    f"{one} and {other} are slow with each other ({value:.3g} GB/s), each fast elsewhere"
                )

    def _measured_pairs(self, ready: Sequence[int]) -> dict[tuple[str, str], float]:
        if self._pairs is not None:
            return self._pairs
        self._pairs = {}
        hosts = self._session.hosts
        for pairs in pair_rounds(self._alive(ready)):
            alive = [pair for pair in pairs if not set(pair) & set(self._session.lost)]
            self._revive(ready)
            for found in measure_groups(self._session, alive, self._ask("p2p")):
                one, other = (hosts[index] for index in found.nodes)
                self._pairs[one, other] = found.best or 0.0
                if found.best is None:
                    said = "; ".join(f"{hosts[index]}: {error}" for index, error in found.errors.items())
                    self._pair_errors |= dict.fromkeys((one, other), said)
        return self._pairs

    def _over_all(self, test: str, ready: Sequence[int]) -> None:
        limit = network_limit(self._job.platform, test) or self._limit_of_peers(ready)
        nodes = self._alive(ready)
        if len(nodes) < 2:
            return self._skip_all(nodes, test)
        found = self._measure(test, nodes)
        if _is_good(found, limit):
            for index in nodes:
                self._add(index, at_least(test, found.best or 0.0, limit, "GB/s", f"over {len(nodes)} nodes"))
            return None
        self._say(f"{test} over {len(nodes)} nodes is {_words(found, limit)}: searching for the node")
        self._blame(test, nodes, found, limit, self._search(test, nodes, limit))
        return None

    def _skip_all(self, nodes: Sequence[int], test: str) -> None:
        for index in nodes:
            self._skip(index, [test], "unknown", "there is no other node to talk to")

    def _search(self, test: str, nodes: Sequence[int], limit: float | None) -> Search:
        """Search; where bad nodes are known already, or one is lost, see first whether the others are good alone."""
        hosts = self._session.hosts

        def is_good(group: Sequence[str]) -> bool:
            indices = [hosts.index(host) for host in group]
            if any(index in self._session.lost for index in indices):
                return False
            return _is_good(self._measure(test, indices), limit)

        known = [hosts[index] for index in nodes if index in self._bad]
        others = [hosts[index] for index in nodes if index not in self._bad and index not in self._session.lost]
        if len(others) < len(nodes) and len(others) > 1 and is_good(others):
            return Search(bad=tuple(known), undecided=(), steps=())
        return find_bad([hosts[index] for index in self._alive(nodes)], is_good)

    def _blame(self, test: str, nodes: Sequence[int], found: Measured, limit: float | None, search: Search) -> None:
        hosts, whole = self._session.hosts, _words(found, limit)
        for step in search.steps:
            self._say(f"  {', '.join(step.nodes)}: {'good' if step.good else 'bad'} ({step.why})")
        for index in nodes:
            if index in self._session.lost:
                continue
            if hosts[index] in search.bad:
                self._bad.add(index)
                detail = f"{whole} over all {len(nodes)} nodes because of this one"
                self._add(
                    index, Finding(test=test, word="fail", detail=detail, value=found.best, limit=limit, unit="GB/s")
                )
            elif search.together or hosts[index] in search.undecided:
                why = "and no single node was found" if search.together else "and nothing good to measure it beside"
                self._add(
                    index, Finding(test=test, word="unknown", detail=f"{whole} over all {len(nodes)} nodes, {why}")
                )
            else:
                without = [hosts[one] for one in nodes if hosts[one] in search.bad or one in self._session.lost]
                self._add(index, Finding(test=test, word="pass", detail=f"good without {', '.join(without)}"))
        if search.together:
            self.remarks.append(f"{test}: all nodes are good in parts, and together {whole}: the network between them")

    def _measure(self, test: str, nodes: Sequence[int]) -> Measured:
        self._revive(nodes)
        return measure(self._session, nodes, self._ask(test))

    def _revive(self, nodes: Sequence[int]) -> None:
        """Start again what had to be killed, so that one hang does not spoil the measurements after it."""
        question = {"act": "start", "count": self._wanted.devices}
        self._session.ask(dict.fromkeys(self._alive(nodes), question), self._wanted.start_s)

    def _limit_of_peers(self, ready: Sequence[int]) -> float | None:
        """Return a limit where the platform has none: a part of what the pairs of this very job reach."""
        best = best_of_pairs(self._measured_pairs(ready))
        values = [value for value in best.values() if value > 0]
        return self._job.platform.limits.collective_fraction * statistics.median(values) if values else None

    def _alive(self, nodes: Sequence[int]) -> list[int]:
        return [index for index in nodes if index not in self._session.lost]

    def _ask(self, op: str) -> Ask:
        wanted = self._wanted
        return Ask(op=op, mib=wanted.sizes_mib, devices=wanted.devices, limit_s=wanted.limit_s)


def _is_good(found: Measured, limit: float | None) -> bool:
    return found.best is not None and (limit is None or found.best >= limit)


def _words(found: Measured, limit: float | None) -> str:
    if found.best is None:
        return f"failed ({next(iter(found.errors.values()), 'no answer')})"
    return f"{found.best:.3g} GB/s{f', below {limit:.3g}' if limit is not None else ''}"
