"""Sets of CPUs in the kernel's notation: `0-3,8`, as sysfs and `taskset -c` have it."""

from __future__ import annotations

from collections.abc import Iterable


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list; an empty text is no CPU. Raises ValueError for other words."""
    cpus: set[int] = set()
    for part in (part.strip() for part in text.split(",")):
        if part:
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the shortest list of the CPUs, in ascending order."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
