"""nvidia-smi: GPUs and their processes by its queries, which print one line of CSV for each (--help-query-gpu there).

Inside a container the list of processes may be empty or hold numbers of the machine outside.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict

from primus_hydra.host.tool import RunTool
from primus_hydra.preflight.tools.seen import GpuProcess, SeenGpu, ToolReport, number, whole

_FORMAT = "--format=csv,noheader,nounits"
_FIELDS = (
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "driver_version",
    "memory.used",
    "memory.total",
    "temperature.gpu",
    "ecc.errors.uncorrected.volatile.total",
)
GPUS = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", _FORMAT)
PROCESSES = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", _FORMAT)


def read_nvidia_smi(run: RunTool) -> ToolReport | None:
    """Return what it says; None if it is not there or fails."""
    rows = [row for row in _rows(run(GPUS)) if len(row) == len(_FIELDS)]
    if not rows:
        return None
    processes: dict[str, list[GpuProcess]] = defaultdict(list)
    for uuid, pid, name, memory in (row for row in _rows(run(PROCESSES)) if len(row) == 4):
        if pid.isdigit():
            processes[uuid].append(GpuProcess(pid=int(pid), name=name, memory_mib=number(memory)))
    gpus = tuple(_gpu(dict(zip(_FIELDS, row, strict=True)), processes) for row in rows)
    return ToolReport(tool="nvidia-smi", driver=rows[0][_FIELDS.index("driver_version")], gpus=gpus)


def _gpu(row: dict[str, str], processes: dict[str, list[GpuProcess]]) -> SeenGpu:
    return SeenGpu(
        index=int(row["index"]),
        pci=row["pci.bus_id"].lower()[-12:],  # the domain has eight digits here, and four in sysfs
        uuid=row["uuid"],
        name=row["name"],
        used_mib=number(row["memory.used"]),
        total_mib=number(row["memory.total"]),
        celsius=number(row["temperature.gpu"]),
        uncorrected=whole(row["ecc.errors.uncorrected.volatile.total"]),
        processes=tuple(processes.get(row["uuid"], ())),
    )


def _rows(text: str | None) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text or ""))]
