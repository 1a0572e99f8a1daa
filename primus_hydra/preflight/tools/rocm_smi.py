"""rocm-smi, where amd-smi is not: one object for each card, numbers as text, processes below `system` as `PID1234`.

A process is listed once for the machine, with the number of its GPUs and not which: it is told of under every card.
"""

from __future__ import annotations

import re
from typing import Any

from primus_hydra.host.amd import json_in
from primus_hydra.host.tool import RunTool
from primus_hydra.preflight.tools.seen import GpuProcess, SeenGpu, ToolReport, number

CARDS = ("rocm-smi", "--showbus", "--showmeminfo", "vram", "--showtemp", "--showdriverversion", "--json")
PROCESSES = ("rocm-smi", "--showpids", "--json")


def read_rocm_smi(run: RunTool) -> ToolReport | None:
    """Return what it says; None if it is not there or fails."""
    data = json_in(run(CARDS))
    cards = data if isinstance(data, dict) else {}
    numbers = sorted(int(key[4:]) for key in cards if re.fullmatch(r"card\d+", key))
    if not numbers:
        return None
    processes = tuple(_processes(json_in(run(PROCESSES))))
    driver = cards.get("system", {}).get("Driver version") if isinstance(cards.get("system"), dict) else None
    gpus = tuple(_card(place, cards[f"card{place}"], processes) for place in numbers)
    return ToolReport(tool="rocm-smi", driver=driver, gpus=gpus)


def _card(index: int, card: dict[str, Any], processes: tuple[GpuProcess, ...]) -> SeenGpu:
    pci = card.get("PCI Bus")
    return SeenGpu(
        index=index,
        pci=pci.lower() if isinstance(pci, str) else None,
        used_mib=_mib(card.get("VRAM Total Used Memory (B)")),
        total_mib=_mib(card.get("VRAM Total Memory (B)")),
        celsius=number(card.get("Temperature (Sensor junction) (C)")),
        processes=processes,
    )


def _processes(data: Any) -> list[GpuProcess]:
    """Read `"PID1234": "python, 1, 123456, 0, 0"`: name, GPUs, bytes of memory, then engines."""
    system = data.get("system") if isinstance(data, dict) else None
    rows = system.items() if isinstance(system, dict) else ()
    found = []
    for key, value in rows:
        pid, fields = re.fullmatch(r"PID(\d+)", key), [field.strip() for field in str(value).split(",")]
        if pid:
            found.append(
                GpuProcess(pid=int(pid[1]), name=fields[0], memory_mib=_mib(fields[2] if len(fields) > 2 else None))
            )
    return found


def _mib(value: Any) -> float | None:
    found = number(value)
    return None if found is None else found / 2**20
