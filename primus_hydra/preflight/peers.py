"""Nodes against each other: what differs from the majority, who is slow among peers. Pure.

Where a platform states no limit (a CPU, a network that nobody measured) this is all that can be said, and where it does
it finds what is within the limit and still the one node that everybody else waits for.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from primus_hydra.preflight.finding import Finding

_ENOUGH = 3
"""Fewer nodes have no majority: two that differ say nothing about which of them is wrong."""


def differing(values: Mapping[str, Mapping[str, str]]) -> dict[str, list[Finding]]:
    """Compare facts (host -> name -> value) over nodes; return a finding of `versions` for each node and each fact.

    A node that differs from a majority fails. Without one, every node is unknown. A node that lacks a fact has the
    value `-`. With one node there is nothing to compare.
    """
    hosts, found = sorted(values), {host: list[Finding]() for host in values}
    if len(hosts) < 2:
        return {host: [Finding(test="versions", word="skip", detail="one node")] for host in hosts}
    for name in sorted({name for facts in values.values() for name in facts}):
        of = {host: values[host].get(name, "-") for host in hosts}
        usual, count = Counter(of.values()).most_common(1)[0]
        for host in hosts:
            finding = _difference(name, of[host], usual, count, len(hosts))
            found[host] += [finding] if finding else []
    alike = f"{len({name for facts in values.values() for name in facts})} facts as on the other nodes"
    return {host: found[host] or [Finding(test="versions", word="pass", detail=alike)] for host in hosts}


def _difference(name: str, value: str, usual: str, count: int, nodes: int) -> Finding | None:
    if count == nodes:
        return None
    if count * 2 <= nodes:
        return Finding(test="versions", word="unknown", detail=f"{name} is {value}, and no majority agrees", weak=True)
    if value == usual:
        return None
    return Finding(test="versions", word="fail", detail=f"{name} is {value}, and {usual} on {count} of {nodes} nodes")


def slow_among(values: Mapping[str, float], fraction: float) -> dict[str, float]:
    """Return the nodes below `fraction` of the median of all, with that bound; higher is better.

    With fewer than three nodes nobody is.
    """
    if len(values) < _ENOUGH:
        return {}
    bound = fraction * statistics.median(values.values())
    return {host: bound for host, value in values.items() if value < bound}


def best_of_pairs(pairs: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Return for each node the bandwidth of its best pair: a slow node is slow with everybody, its peers are not."""
    best: dict[str, float] = {}
    for pair, value in pairs.items():
        for host in pair:
            best[host] = max(best.get(host, 0.0), value)
    return best


def pair_rounds(nodes: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return rounds of disjoint pairs in which every node meets its two neighbours on a ring.

    Pairs of one round can be measured at the same time without sharing a node. Two nodes meet once; one meets nobody.
    """
    count = len(nodes)
    if count < 2:
        return []
    ring = [(nodes[place], nodes[(place + 1) % count]) for place in range(count if count > 2 else 1)]
    even, odd = ring[0 : count - 1 : 2], ring[1:count:2]
    last = [ring[-1]] if count > 2 and count % 2 == 1 else []
    return [pairs for pairs in (even, odd, last) if pairs]
