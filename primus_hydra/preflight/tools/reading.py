"""Asking whichever tool is there, and how long it took: a tool that hangs is itself a sign of a sick GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from primus_hydra.host.tool import RunTool
from primus_hydra.preflight.tools.amd_smi import read_amd_smi
from primus_hydra.preflight.tools.nvidia_smi import read_nvidia_smi
from primus_hydra.preflight.tools.rocm_smi import read_rocm_smi
from primus_hydra.preflight.tools.seen import Reader, ToolReport

_READERS: dict[str, tuple[Reader, ...]] = {
    "nvidia": (read_nvidia_smi,),
    "amd": (read_amd_smi, read_rocm_smi),
    "cpu": (),
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the first tool that answered said, and the seconds that its slowest command took."""

    report: ToolReport | None
    slowest_s: float = 0.0


def read_tools(vendor: str, run: RunTool) -> Reading:
    """Ask the tools of a vendor, the newer one first."""
    for reader in _READERS[vendor]:
        clock = _Clock(run)
        report = reader(clock)
        if report is not None:
            return Reading(report=report, slowest_s=clock.slowest_s)
    return Reading(report=None)


class _Clock:
    def __init__(self, run: RunTool) -> None:
        self._run = run
        self.slowest_s = 0.0

    def __call__(self, argv: Sequence[str]) -> str | None:
        began = time.monotonic()
        output = self._run(argv)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        return output
