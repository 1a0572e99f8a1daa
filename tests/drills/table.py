"""The table of all faults. Each is drilled with two ranks, twelve steps, and a save every three.

On one machine with both backends; in Slurm with both where that is cheap.
"""

from __future__ import annotations

from tests.drills import table_places as places
from tests.drills import table_processes as processes
from tests.drills import table_slurm as slurm
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
        *slurm.PREEMPTIONS,
        *slurm.ENDS,
        *slurm.NODES,
        *slurm.HANGS,
        *slurm.CONTROLLERS,
        *slurm.SUBMITTERS,
    )
}
