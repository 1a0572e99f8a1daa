"""amd-smi: its JSON, a list of GPUs up to ROCm 6 and below `gpu_data` from ROCm 7.

A GPU without processes has the text "No running processes detected" in place of one. Asked for all GPUs at once it may
list a process under every GPU, with memory 0 where it has none: whose memory it is says nothing there.
"""

from __future__ import annotations

from typing import Any

from primus_hydra.host.amd import json_in
from primus_hydra.host.tool import RunTool
from primus_hydra.preflight.tools.seen import GpuProcess, SeenGpu, ToolReport, number, whole

STATIC = ("amd-smi", "static", "--asic", "--bus", "--driver", "--json")
METRIC = ("amd-smi", "metric", "--mem-usage", "--temperature", "--ecc", "--json")
PROCESSES = ("amd-smi", "process", "--json")


def read_amd_smi(run: RunTool) -> ToolReport | None:
    """Return what it says; None if it is not there or fails."""
    static = _by_gpu(run(STATIC))
    if not static:
        return None
    metric, processes = _by_gpu(run(METRIC)), _by_gpu(run(PROCESSES))
    gpus = tuple(
        _gpu(index, static[index], metric.get(index, {}), processes.get(index, {})) for index in sorted(static)
    )
    first = _node(static[min(static)], "driver")
    return ToolReport(tool="amd-smi", driver=_text(first, "version") or _text(first, "driver_version"), gpus=gpus)


def _by_gpu(output: str | None) -> dict[int, dict[str, Any]]:
    data = json_in(output)
    listed = data.get("gpu_data") if isinstance(data, dict) else data
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return {int(entry["gpu"]): entry for entry in entries if isinstance(entry.get("gpu"), int)}


def _gpu(index: int, static: dict[str, Any], metric: dict[str, Any], processes: dict[str, Any]) -> SeenGpu:
    memory, heat, errors = (_node(metric, name) for name in ("mem_usage", "temperature", "ecc"))
    pci = _text(_node(static, "bus"), "bdf")
    return SeenGpu(
        index=index,
        pci=pci.lower() if pci else None,
        name=_text(_node(static, "asic"), "market_name"),
        used_mib=number(memory.get("used_vram")),
        total_mib=number(memory.get("total_vram")),
        celsius=number(heat.get("hotspot")),
        uncorrected=whole(errors.get("total_uncorrectable_count")),
        processes=tuple(_processes(processes.get("process_list"))),
    )


def _processes(listed: Any) -> list[GpuProcess]:
    entries = [entry.get("process_info", entry) for entry in listed or [] if isinstance(entry, dict)]
    found = []
    for entry in (entry for entry in entries if isinstance(entry, dict)):
        pid = whole(entry.get("pid"))
        if pid is not None:
            found.append(GpuProcess(pid=pid, name=_text(entry, "name") or "", memory_mib=_memory_mib(entry)))
    return found


def _memory_mib(entry: dict[str, Any]) -> float | None:
    """Read the memory of a process, whose unit is told: bytes, or a multiple of 1000 or 1024 of them."""
    usage = _node(entry, "memory_usage").get("vram_mem") or entry.get("mem_usage") or entry.get("mem")
    found = number(usage)
    unit = usage.get("unit", "B") if isinstance(usage, dict) else "B"
    factor = {"B": 1.0, "KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30}.get(str(unit))
    return None if found is None or factor is None else found * factor / 2**20


def _node(tree: dict[str, Any], key: str) -> dict[str, Any]:
    found = tree.get(key)
    return found if isinstance(found, dict) else {}


def _text(node: dict[str, Any], key: str) -> str | None:
    value = node.get(key)
    return value.strip() if isinstance(value, str) and value.strip() not in ("", "N/A") else None
