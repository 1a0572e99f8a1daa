"""The facts of one node: machine, GPUs, network, software. Read below a root, so that a test may bring its own machine.

Nothing here judges. `comparable` picks what must be the same on all nodes of a job.
"""

from __future__ import annotations

import os
import platform as python_platform
import resource
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from primus_hydra.host.cores import read_cores
from primus_hydra.host.detect import Detection
from primus_hydra.host.network import NetworkFacts
from primus_hydra.host.packages import installed_version
from primus_hydra.preflight.tools.seen import ToolReport

_PACKAGES = ("primus-hydra", "torch", "numpy", "torchtitan", "megatron-core", "transformer-engine", "triton")
_DRIVERS = {"amd": "sys/module/amdgpu/version", "nvidia": "sys/module/nvidia/version"}
_GIB = 2**30


def host_facts(root: Path = Path("/")) -> dict[str, Any]:
    """Return what the machine is: kernel, system, processor, memory, limits."""
    cores = read_cores(root)
    return {
        "kernel": _read(root / "proc/sys/kernel/osrelease") or os.uname().release,
        "system": _assignments(root / "etc/os-release").get("PRETTY_NAME", ""),
        "processor": _processor(root),
        "cores": cores.physical,
        "threads": cores.logical,
        "memory_gib": round(_memory_kib(root, "MemTotal") / 2**20, 1),
        "available_gib": round(_memory_kib(root, "MemAvailable") / 2**20, 1),
        "shm_gib": _size_gib(root / "dev/shm"),
        "memlock_gib": memlock_gib(),
        "numa_nodes": len(list(root.glob("sys/devices/system/node/node[0-9]*"))),
    }


def software_facts() -> dict[str, str]:
    """Return the versions of Python and of the packages that ranks use; what is not installed is left out."""
    versions = {name: version for name in _PACKAGES if (version := installed_version(name)) is not None}
    return {"python": python_platform.python_version(), **versions}


def gpu_facts(detection: Detection, tool: ToolReport | None, vendor: str, root: Path = Path("/")) -> dict[str, Any]:
    """Return the GPUs that this node may use, their driver, and what the tool says of them."""
    driver = _read(root / _DRIVERS[vendor]) if vendor in _DRIVERS else ""
    return {
        "seen": detection.seen,
        "count": detection.gpu_count,
        "labels": sorted({gpu.label for gpu in detection.gpus}),
        "driver": driver or (tool.driver if tool else None),
        "tool": None if tool is None else tool.tool,
        "gpus": [] if tool is None else [asdict(gpu) for gpu in tool.gpus],
    }


def network_facts(network: NetworkFacts) -> dict[str, Any]:
    """Return RDMA ports and interfaces."""
    return {
        "rdma": [
            {"name": port.name, "layer": port.link_layer, "gb_s": port.rate / 8, "usable": port.usable}
            for port in network.ports
        ],
        "interfaces": {one.name: "down" if one.down else f"{one.speed} Mb/s" for one in network.interfaces},
    }


def comparable(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts that nodes of one job must share, as text."""
    host, gpu, network, devices = (facts.get(name, {}) for name in ("host", "gpu", "network", "devices"))
    same = {
        "kernel": host.get("kernel"),
        "system": host.get("system"),
        "processor": host.get("processor"),
        "memory": _rounded(host.get("memory_gib")),
        "GPUs": f"{gpu.get('count')} x {', '.join(gpu.get('labels', []))}" if gpu.get("count") else None,
        "GPU driver": gpu.get("driver"),
        "RDMA ports": _ports(network.get("rdma", [])),
        "GPU runtime": devices.get("runtime"),
        "collectives": devices.get("collectives"),
        **facts.get("software", {}),
    }
    return {name: str(value) for name, value in same.items() if value not in (None, "")}


def memlock_gib() -> float | None:
    """Return how much memory a process may lock, in GiB; None is without limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else round(soft / _GIB, 3)


def _ports(rdma: list[Mapping[str, Any]]) -> str | None:
    active = sorted(f"{port['name']} {port['gb_s'] * 8:g}" for port in rdma if port["usable"])
    return f"{len(active)} active ({', '.join(active)} Gb/s)" if active else None


def _rounded(memory_gib: float | None) -> str | None:
    """Round memory to 5 %: kernels of one kind of machine differ in what they keep for themselves."""
    if not memory_gib:
        return None
    step = max(1.0, 10 ** (len(str(int(memory_gib))) - 1) / 2)
    return f"{round(memory_gib / step) * step:g} GiB"


def _size_gib(path: Path) -> float | None:
    try:
        return round(shutil.disk_usage(path).total / _GIB, 3)
    except OSError:
        return None


def _processor(root: Path) -> str:
    lines = _read(root / "proc/cpuinfo").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _memory_kib(root: Path, name: str) -> int:
    lines = (line.split() for line in _read(root / "proc/meminfo").splitlines())
    return next((int(line[1]) for line in lines if len(line) > 1 and line[0] == f"{name}:"), 0)


def _assignments(file: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in _read(file).splitlines())
    return {name: value.strip('"') for name, _, value in pairs}


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
