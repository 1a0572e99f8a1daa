"""Bandwidths of collectives from their times; pure.

The bus bandwidth is what each link carries if the collective is optimal, so that it does not depend on the number of
ranks and can be held against a link's own rate (nccl-tests, PERFORMANCE.md).
"""

from __future__ import annotations

from typing import Literal

Op = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p", "ring"]


def bus_factor(op: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth; raises ValueError below two ranks."""
    if ranks < 2:
        raise ValueError(f"a collective of {ranks} rank(s) crosses no link")
    if op == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def bus_gb_s(op: str, mib: float, seconds: float, ranks: int) -> float:
    """Return the bus bandwidth in GB/s (10^9) of a collective over buffers of `mib` MiB."""
    return mib * 2**20 / seconds / 1e9 * bus_factor(op, ranks)
