"""The rates that a platform's nodes must reach, from its limits and its peaks; pure. None: no limit is known."""

from __future__ import annotations

from primus_hydra.config.schema import PlatformConfig


def gemm_limit(platform: PlatformConfig) -> float | None:
    """Return TFLOP/s of a bfloat16 product on one GPU."""
    return platform.limits.gemm_tflops or _part(platform.limits.gemm_fraction, platform.peak_tflops.get("bfloat16"))


def copy_limit(platform: PlatformConfig) -> float | None:
    """Return GB/s of a copy in one GPU's memory."""
    return platform.limits.copy_gb_s or _part(platform.limits.copy_fraction, platform.memory_bandwidth_gb_s)


def local_limit(platform: PlatformConfig) -> float | None:
    """Return GB/s of bus bandwidth within a node."""
    return platform.limits.local_gb_s or _part(platform.limits.local_fraction, platform.link_bandwidth_gb_s)


def network_limit(platform: PlatformConfig, op: str) -> float | None:
    """Return GB/s of bus bandwidth between nodes.

    A ring of all_reduce crosses each node's border on all adapters at once, and is never faster than the links within;
    p2p, ring and all_to_all are held against one adapter, which is all that one GPU has.
    """
    one = platform.limits.network_gb_s or _part(platform.limits.network_fraction, platform.nic_bandwidth_gb_s)
    if one is None or op != "all_reduce":
        return one
    together = one * max(1, platform.gpus_per_node)
    within = local_limit(platform)
    return together if within is None else min(together, within)


def _part(fraction: float, whole: float | None) -> float | None:
    return None if whole is None else fraction * whole
