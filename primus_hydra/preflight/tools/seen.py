"""The one form of what a tool says. A number that a tool does not give (N/A) is None: it is not zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from primus_hydra.host.tool import RunTool


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process on a GPU, as its own machine numbers it; `memory_mib` is None where the tool does not tell."""

    pid: int
    name: str = ""
    memory_mib: float | None = None


@dataclass(frozen=True, kw_only=True)
class SeenGpu:
    """One GPU: `pci` and `uuid` as the tool prints them, memory in MiB, uncorrected errors since the driver's start."""

    index: int
    pci: str | None = None
    uuid: str | None = None
    name: str | None = None
    used_mib: float | None = None
    total_mib: float | None = None
    celsius: float | None = None
    uncorrected: int | None = None
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolReport:
    """What one tool said of all GPUs."""

    tool: str
    driver: str | None
    gpus: tuple[SeenGpu, ...]


Reader = Callable[[RunTool], ToolReport | None]


def number(value: Any) -> float | None:
    """Read a number as tools print one: 12, "12", {"value": 12, "unit": "MB"}; None for N/A and the like."""
    if isinstance(value, dict):
        value = value.get("value")
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def whole(value: Any) -> int | None:
    """Read a count."""
    found = number(value)
    return None if found is None else int(found)
