"""What one node finds out about itself without torch: its facts and its host tests, in bounded time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from primus_hydra.config.schema import JobConfig
from primus_hydra.host.detect import Detection, detect_platform
from primus_hydra.host.gpu import renumbered_masks
from primus_hydra.host.network import NetworkFacts, read_network
from primus_hydra.host.tool import RunTool, run_tool
from primus_hydra.measure.bounded import bounded
from primus_hydra.preflight import facts
from primus_hydra.preflight.finding import Finding
from primus_hydra.preflight.host_checks import (
    disk_finding,
    gpus_finding,
    memlock_finding,
    processes_finding,
    shm_finding,
    tool_finding,
)
from primus_hydra.preflight.kernel_log import kernel_log_finding
from primus_hydra.preflight.rdma import VARIABLE, rdma_finding
from primus_hydra.preflight.tools.reading import Reading, read_tools

_SHARE = 0.3
"""How much of the time for all of it one test may take: they run at the same time, after what they need was read."""


def examine_node(
    job: JobConfig,
    tests: Sequence[str],
    *,
    devices: int,
    folder: Path,
    limit_s: float,
    root: Path = Path("/"),
    run: RunTool = run_tool,
) -> dict[str, Any]:
    """Return {"facts": ..., "findings": [...]} of this node within `limit_s`; `folder` is where runs are written."""
    platform = job.platform
    network = read_network(root)
    detection = _detect(job, root, run)
    reading = _read_tools(platform.vendor, run, limit_s * _SHARE)
    host = facts.host_facts(root)
    words = {**platform.env, **os.environ, **job.env}.get(VARIABLE)
    checks: Mapping[str, Callable[[], Finding]] = {
        "gpus": lambda: gpus_finding(platform, detection, devices),
        "gpu_tool": lambda: tool_finding(platform, reading),
        "gpu_processes": lambda: processes_finding(platform, reading, detection, _own_processes()),
        "memlock": lambda: memlock_finding(platform, host["memlock_gib"], rdma=_uses_rdma(network, job)),
        "shm": lambda: shm_finding(platform, host["shm_gib"]),
        "disk": lambda: disk_finding(platform, folder),
        "kernel_log": lambda: kernel_log_finding(root, platform.limits.kernel_log_minutes),
        "rdma": lambda: rdma_finding(network.ports, words, wanted=job.network.kind in ("ib", "roce")),
    }
    chosen = [(name, check) for name, check in checks.items() if name in tests]
    with ThreadPoolExecutor(max(1, len(chosen))) as pool:
        findings = list(pool.map(lambda one: _made(one[0], one[1], limit_s * _SHARE), chosen))
    known = {
        "host": host,
        "gpu": facts.gpu_facts(detection, reading.report, platform.vendor, root),
        "network": facts.network_facts(network),
        "software": facts.software_facts(),
    }
    return {"facts": known, "findings": [asdict(finding) for finding in findings]}


def _made(name: str, check: Callable[[], Finding], limit_s: float) -> Finding:
    """Make one test; one that hangs, or fails in an unforeseen way, is a finding too."""
    try:
        return bounded(check, limit_s)
    except TimeoutError as error:
        return Finding(test=name, word="fail", detail=str(error))
    except Exception as error:
        return Finding(test=name, word="unknown", detail=f"{type(error).__name__}: {error}")


def _read_tools(vendor: str, run: RunTool, limit_s: float) -> Reading:
    try:
        return bounded(lambda: read_tools(vendor, run), limit_s)
    except TimeoutError:
        return Reading(report=None)


def _detect(job: JobConfig, root: Path, run: RunTool) -> Detection:
    masks = renumbered_masks(job.platform.vendor, os.environ)
    seen = {**job.platform.env, **os.environ, **masks, **job.env}
    return detect_platform({job.platform.name: job.platform.product_names}, root=root, run=run, env=seen)


def _uses_rdma(network: NetworkFacts, job: JobConfig) -> bool:
    return job.network.kind != "tcp" and any(port.usable for port in network.ports)


def _own_processes() -> set[int]:
    """Return this process, its ancestors and what it has started: none of them is somebody else's."""
    here = psutil.Process()
    return {here.pid, *(one.pid for one in here.parents()), *(one.pid for one in here.children(recursive=True))}
