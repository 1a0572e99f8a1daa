"""Which CPUs each rank of a node may use, and why: decided from the node's topology, where it helps.

A rank near its GPU reaches it, and its own memory, without crossing the sockets. Ranks share whole cores, so that no
two of them meet on the hyper-threads of one. Refuses to guess: a GPU that nobody places binds no rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from primus_hydra.host.cpu_list import format_cpu_list
from primus_hydra.host.topology import Topology

Core = frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The CPUs of every local rank in the kernel's notation, and the reason; no CPUs: the kernel places the ranks.

    `cores` counts those of the rank with the fewest; it is at least 1, also where ranks have to share one.
    """

    reason: str
    cpus: tuple[str, ...] = ()
    cores: int | None = None


def bind_ranks(
    mode: Literal["auto", "none"], topology: Topology | None, *, ranks: int, on_gpus: bool, joined: bool
) -> Binding:
    """Decide for `ranks` local ranks; rank i takes GPU i if `on_gpus`.

    `topology` is None where nothing is known of the node. `joined`: an outer launcher started this process, so that
    its CPUs say nothing of those of the other ranks.
    """
    if mode == "none":
        return Binding(reason="not bound: launch.bind=none")
    if joined:
        return Binding(reason="not bound: the outer launcher decides (srun --cpu-bind, torchrun --numa-binding)")
    gpus = topology.gpus if topology is not None else ()
    if on_gpus and ranks > len(gpus):
        return Binding(reason=f"not bound: {ranks} GPUs are wanted, and {len(gpus)} of the platform's are visible here")
    if topology is None or len(topology.nodes) < 2:
        return Binding(reason="not bound: the usable CPUs are in one NUMA node, so all memory is equally near")
    return _near_gpus(topology, gpus[:ranks]) if on_gpus else _over_nodes(topology, ranks)


def _near_gpus(topology: Topology, gpus: Sequence[int | None]) -> Binding:
    """Give each rank its share of the cores of its GPU's NUMA node."""
    if all(node is None for node in gpus):
        return Binding(reason="not bound: nothing tells the NUMA node of the GPUs, and a guess may be the far one")
    homes = _homes(topology, gpus)
    spread = Counter(homes)
    near = [node for node in topology.nodes if spread[node.number]]
    shares = {node.number: iter(_split(node.cores, spread[node.number])) for node in near}
    words = ", ".join(f"{spread[node.number]} on NUMA node {node.number}" for node in near)
    return Binding(
        reason=f"bound to the cores near their GPUs: {words}",
        cpus=tuple(format_cpu_list(next(shares[home])) for home in homes),
        cores=min(max(1, len(node.cores) // spread[node.number]) for node in near),
    )


def _homes(topology: Topology, gpus: Sequence[int | None]) -> list[int]:
    """Return a NUMA node for every rank; a GPU that nothing places gets the node with the most cores for each rank."""
    cores = {node.number: len(node.cores) for node in topology.nodes}
    spread = Counter(node for node in gpus if node is not None)
    homes: list[int] = []
    for node in gpus:
        home = node
        if home is None:
            home = max(cores, key=lambda number: cores[number] / (1 + spread[number]))
            spread[home] += 1
        homes.append(home)
    return homes


def _over_nodes(topology: Topology, ranks: int) -> Binding:
    """Cut the cores, in the order of their NUMA nodes, in equal parts: neighbours among the ranks share a node."""
    cores = [core for node in topology.nodes for core in node.cores]
    if ranks == 1:
        return Binding(reason="not bound: one rank uses the cores of all NUMA nodes")
    if ranks > len(cores):
        return Binding(reason=f"not bound: {ranks} ranks share {len(cores)} cores")
    return Binding(
        reason=f"bound to equal shares of {len(cores)} cores in {len(topology.nodes)} NUMA nodes",
        cpus=tuple(format_cpu_list(share) for share in _split(cores, ranks)),
        cores=len(cores) // ranks,
    )


def _split(cores: Sequence[Core], parts: int) -> list[frozenset[int]]:
    """Cut cores in neighbouring parts that differ by one at most; fewer cores than parts are everybody's."""
    if len(cores) < parts:
        return [frozenset().union(*cores)] * parts
    edges = [part * len(cores) // parts for part in range(parts + 1)]
    return [frozenset().union(*cores[first:last]) for first, last in pairwise(edges)]
