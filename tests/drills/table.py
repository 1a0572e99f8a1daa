"""The table of all faults. Each is drilled with both backends, two ranks, twelve steps, and a save every three."""

from __future__ import annotations

from tests.drills import table_places as places
from tests.drills import table_processes as processes
from tests.drills.fault import Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        *processes.DEATHS,
        *processes.SIGNALS,
        *processes.HANGS,
        *processes.FAILURES,
        *places.CHECKPOINTS,
        *places.DISKS,
        *places.OTHERS,
    )
}
