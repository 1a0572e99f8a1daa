"""Processor cores that this process may use: affinity, hyper-threads and the container's quota.

Ranks on a CPU are sized by physical cores: two threads of one core share its arithmetic units, and a rank that waits
for its sibling makes all ranks wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Cores:
    """Cores of this process: `logical` and `physical` after affinity, `quota` in cores if a cgroup limits the time."""

    logical: int
    physical: int
    quota: float | None = None

    @property
    def usable(self) -> int:
        """Physical cores that can be busy all the time; at least 1."""
        return max(1, min(self.physical, int(self.quota) if self.quota is not None else self.physical))


def usable_cores() -> int:
    """Return the physical cores that this process can keep busy; at least 1."""
    return read_cores().usable


def read_cores(root: Path = Path("/"), affinity: frozenset[int] | None = None) -> Cores:
    """Read affinity (default: this process's own), core topology and cgroup quota below `root`."""
    cpus = affinity if affinity is not None else frozenset(os.sched_getaffinity(0))
    return Cores(logical=len(cpus), physical=len(cores_of(root, cpus)), quota=_quota(root))


def cores_of(root: Path, cpus: Iterable[int]) -> tuple[frozenset[int], ...]:
    """Group CPUs by the core whose hyper-threads they are, in the order of each core's lowest CPU."""
    cores: dict[str, set[int]] = {}
    for cpu in sorted(cpus):
        cores.setdefault(_core_of(root, cpu), set()).add(cpu)
    return tuple(frozenset(core) for core in cores.values())


def _core_of(root: Path, cpu: int) -> str:
    """Return a name that the hyper-threads of one core share; the CPU itself where the kernel does not tell."""
    topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):  # the second is the name before Linux 5.3
        siblings = _read(topology / name)
        if siblings:
            return siblings
    return str(cpu)


def _quota(root: Path) -> float | None:
    """Return the smallest CPU limit of the cgroups that hold this process, in cores."""
    limits = [limit for limit in _limits(root) if limit is not None]
    return min(limits, default=None)


def _limits(root: Path) -> Iterator[float | None]:
    for line in _read(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0":
            for folder in _upwards(root / "sys/fs/cgroup", path):
                yield _v2(_read(folder / "cpu.max"))
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "sys/fs/cgroup/cpu", path):
                yield _share(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """Yield the cgroup's folder and those above it: a limit holds for everything below."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])


def _v2(text: str) -> float | None:
    quota, _, period = text.partition(" ")
    return _share(quota, period)


def _share(quota: str, period: str) -> float | None:
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:  # "max" and -1 mean no limit
        return None
    return int(quota) / int(period)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
