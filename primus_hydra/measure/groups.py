"""Groups of ranks over nodes that still answer: collectives, measured; what goes wrong is told by its node."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from primus_hydra.measure.rates import bus_gb_s
from primus_hydra.measure.session import Session

LOOPBACK = "127.0.0.1"
_STORE_LIMIT_S = 20.0
_LATER_S = 5.0
"""The ranks' own limit comes first, so that they can say which collective it was."""
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A collective to measure: buffers in MiB, calls for each, and how long all of it may take."""

    op: str
    mib: tuple[float, ...]
    devices: int
    limit_s: float
    dtype: str = "float32"
    calls: int = 5


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One collective over some nodes, for each size: seconds and bus bandwidth in GB/s, or each node's error.

    The time of a collective is that of its slowest rank; `gb_s` is that of the median call, `best_gb_s` of the fastest.
    """

    nodes: tuple[int, ...]
    ranks: int
    seconds: tuple[float, ...] = ()
    gb_s: tuple[float, ...] = ()
    best_gb_s: tuple[float, ...] = ()
    errors: Mapping[int, str] = field(default_factory=dict)

    @property
    def best(self) -> float | None:
        """The highest bandwidth of all sizes; None if the collective failed."""
        return max(self.best_gb_s, default=None)


def measure(session: Session, nodes: Sequence[int], ask: Ask) -> Measured:
    """Measure one collective over all devices of each of `nodes`."""
    return measure_groups(session, [nodes], ask)[0]


def measure_groups(session: Session, groups: Sequence[Sequence[int]], ask: Ask) -> list[Measured]:
    """Measure the collective over each group, all groups at the same time; no node may be in two of them.

    For p2p over two nodes the devices of the same number talk to each other; on one node the first half of the devices
    talks to the second. Takes little longer than the limit, whatever hangs.
    """
    firsts = {group[0] for group in groups}
    served = session.ask(dict.fromkeys(firsts, _questions([{"do": "store"}], ask.devices)), _STORE_LIMIT_S)
    ports = {first: _port(served.get(first), session.lost.get(first, "it did not answer")) for first in firsts}
    questions: dict[int, dict[str, Any]] = {}
    for group in groups:
        port = ports[group[0]]
        if isinstance(port, int):
            questions |= _of_group(session, group, port, ask)
    answers = session.ask(questions, ask.limit_s + _LATER_S)
    return [_measured(session, tuple(group), ports[group[0]], ask, answers) for group in groups]


def _of_group(session: Session, group: Sequence[int], port: int, ask: Ask) -> dict[int, dict[str, Any]]:
    common = {
        "do": "collective",
        "op": ask.op,
        "mib": list(ask.mib),
        "world": len(group) * ask.devices,
        "host": LOOPBACK if len(group) == 1 else session.hosts[group[0]],
        "port": port,
        "key": f"group-{next(_numbers)}",
        "dtype": ask.dtype,
        "calls": ask.calls,
        "timeout_s": ask.limit_s,
    }
    return {
        node: _questions([{**common, "rank": place * ask.devices + local} for local in range(ask.devices)], ask.devices)
        for place, node in enumerate(group)
    }


def _questions(each: list[dict[str, Any]], devices: int) -> dict[str, Any]:
    return {"act": "ask", "questions": [*each, *[None] * (devices - len(each))]}


def _port(answer: Mapping[str, Any] | None, silent: str) -> int | str:
    """Return the port of the group's store, or what went wrong."""
    if answer is None or "error" in answer:
        return silent if answer is None else str(answer["error"])
    said = answer["value"][0]
    return str(said["error"]) if "error" in said else int(said["value"]["port"])


def _measured(
    session: Session, nodes: tuple[int, ...], port: int | str, ask: Ask, answers: Mapping[int, Mapping[str, Any]]
) -> Measured:
    ranks = len(nodes) * ask.devices
    if isinstance(port, str):
        return Measured(nodes=nodes, ranks=ranks, errors={nodes[0]: port})
    errors: dict[int, str] = {}
    said: list[Mapping[str, Any]] = []
    for node in nodes:
        answer = answers.get(node)
        if answer is None or "error" in answer:
            errors[node] = session.lost.get(node, "it did not answer") if answer is None else str(answer["error"])
            continue
        bad = [one["error"] for one in answer["value"] if "error" in one]
        errors |= {node: str(bad[0])} if bad else {}
        said += [one["value"] for one in answer["value"] if one.get("value")]
    if errors:
        return Measured(nodes=nodes, ranks=ranks, errors=errors)
    seconds, best = _slowest(said, "seconds"), _slowest(said, "best_seconds")
    return Measured(
        nodes=nodes,
        ranks=ranks,
        seconds=seconds,
        gb_s=tuple(bus_gb_s(ask.op, mib, taken, ranks) for mib, taken in zip(ask.mib, seconds, strict=True)),
        best_gb_s=tuple(bus_gb_s(ask.op, mib, taken, ranks) for mib, taken in zip(ask.mib, best, strict=True)),
    )


def _slowest(said: Sequence[Mapping[str, Any]], name: str) -> tuple[float, ...]:
    return tuple(max(times) for times in zip(*(one[name] for one in said), strict=True))
