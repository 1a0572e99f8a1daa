"""Where the CPUs and GPUs of this node sit: its NUMA nodes, their usable cores, and the NUMA node of every GPU.

Read from sysfs only, so it costs nothing, touches no device and needs neither numactl nor a vendor's tool. Usable is
what the affinity of this process leaves; the kernel has already cut that mask down to the cgroup's cpuset.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.host.cores import cores_of
from primus_hydra.host.cpu_list import parse_cpu_list
from primus_hydra.host.gpu import Gpu


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """A NUMA node and its usable cores; a core is the set of its usable hyper-threads, and the lowest CPU orders it."""

    number: int
    cores: tuple[frozenset[int], ...]


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The NUMA nodes that have a usable core, by number, and for each GPU which of them is its own.

    `gpus` are in the order in which local ranks get them. A GPU whose own node has no usable core counts for the
    nearest that has one; None where nothing says where the GPU is.
    """

    nodes: tuple[NumaNode, ...]
    gpus: tuple[int | None, ...] = ()


def read_topology(
    gpus: Sequence[Gpu] = (), *, root: Path = Path("/"), affinity: frozenset[int] | None = None
) -> Topology:
    """Read the topology below `root` for the visible `gpus`; `affinity` is this process's own by default."""
    usable = affinity if affinity is not None else frozenset(os.sched_getaffinity(0))
    cpus = _cpus_of_nodes(root) or {0: usable}  # a kernel without NUMA has no such files
    nodes = tuple(
        NumaNode(number=number, cores=cores_of(root, own & usable)) for number, own in cpus.items() if own & usable
    )
    numbers = [node.number for node in nodes]
    places = (_node_of(root, gpu, cpus) for gpu in gpus)
    return Topology(nodes=nodes, gpus=tuple(_nearest(root, place, numbers) for place in places))


def _cpus_of_nodes(root: Path) -> dict[int, frozenset[int]]:
    """Return the CPUs of every NUMA node; one that is only memory has none."""
    folders = root.glob("sys/devices/system/node/node[0-9]*")
    numbers = sorted(int(folder.name.removeprefix("node")) for folder in folders)
    return {number: _cpus(_node_folder(root, number) / "cpulist") for number in numbers}


def _node_of(root: Path, gpu: Gpu, cpus: Mapping[int, frozenset[int]]) -> int | None:
    """Return the GPU's NUMA node; where firmware leaves it open (-1), the only one among the bus's local CPUs."""
    if gpu.pci is None:
        return None
    device = root / "sys/bus/pci/devices" / gpu.pci
    number = _read(device / "numa_node")
    if number.isdigit():
        return int(number)
    local = _cpus(device / "local_cpulist")
    homes = [node for node, own in cpus.items() if own & local]
    return homes[0] if len(homes) == 1 else None


def _nearest(root: Path, node: int | None, usable: Sequence[int]) -> int | None:
    """Return the node itself if it is usable, else the one at the smallest distance, if the firmware tells any."""
    if node is None or node in usable:
        return node
    # The line has one distance for every node that is online, in ascending order of their numbers.
    distances = _read(_node_folder(root, node) / "distance").split()
    far = {number: int(far) for number, far in zip(sorted(_cpus_of_nodes(root)), distances, strict=False)}
    return min((number for number in usable if number in far), key=lambda number: far[number], default=None)


def _node_folder(root: Path, number: int) -> Path:
    return root / f"sys/devices/system/node/node{number}"


def _cpus(file: Path) -> frozenset[int]:
    return parse_cpu_list(_read(file))


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
