"""What hardware does in practice: a few fractions of its stated peaks, each with its source; times of collectives.

A fraction belongs to a kind of work on a kind of hardware, never to one published run. `Rates.measured` may replace
them with figures from the user's own node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from primus_hydra.config.schema.platform import PlatformConfig
from primus_hydra.plan.setting import Setting

MICRO = 1e-6


@dataclass(frozen=True, kw_only=True)
class Fractions:
    """Achieved parts of a platform's peaks; those of attention are parts of the 16-bit peak.

    `attention_forward` and `_backward` are those of kernels as good as FlashAttention-3, `attention_2` of
    FlashAttention-2's on the same hardware, for both directions alike.
    """

    gemm_16: float
    gemm_8: float
    attention_forward: float
    attention_backward: float
    attention_2: float
    memory: float = 0.8
    link: float = 0.75
    nic: float = 0.85
    source: str


_CUBLAS = "cuBLAS 720 of 989 (bf16) and 1280 of 1979 (fp8) TFLOP/s (SemiAnalysis, 2024-12, MI300X vs H100 vs H200)"
_FLASH = (
    "attention: Shah et al. 2024, FlashAttention-3, figures 5 and 6 (causal, width 128), and FlashAttention-2 there"
)
_HIPBLAS = "hipBLASLt's max-achievable rates (ROCm blogs 2025, Measuring Max-Achievable FLOPs, part 2)"
_ASSUMED = "assumed: as the generation before"

HOPPER = Fractions(
    gemm_16=0.73, gemm_8=0.65, attention_forward=0.60, attention_backward=0.50, attention_2=0.36, link=0.78,
    source=f"{_CUBLAS}; {_FLASH}",
)  # fmt: skip
BLACKWELL = replace(HOPPER, source=f"{_ASSUMED} ({_CUBLAS})")
CDNA3 = Fractions(
    gemm_16=0.54, gemm_8=0.487, attention_forward=0.35, attention_backward=0.25, attention_2=0.25, memory=0.75,
    link=0.7, source=f"708 of 1307 (bf16) and 1273 of 2615 (fp8) TFLOP/s: {_HIPBLAS}; attention assumed",
)  # fmt: skip
MI325X = replace(
    CDNA3, gemm_16=0.645, gemm_8=0.581,
    source=f"843 of 1307 (bf16) and 1519 of 2615 (fp8) TFLOP/s: {_HIPBLAS}; attention assumed",
)  # fmt: skip
CDNA4 = replace(MI325X, source=f"{_ASSUMED} (MI325X)")
PROCESSOR = Fractions(
    gemm_16=0.5,
    gemm_8=0.5,
    attention_forward=0.3,
    attention_backward=0.3,
    attention_2=0.3,
    source="assumed: no platform",
)
_BY_NAME = {"mi325x": MI325X}
_BY_ARCH = {"sm_90": HOPPER, "sm_100": BLACKWELL, "gfx942": CDNA3, "gfx950": CDNA4}


def fractions_of(platform: PlatformConfig) -> Fractions:
    """Return the fractions of a platform, by its name or its architecture."""
    return _BY_NAME.get(platform.name) or _BY_ARCH.get(platform.arch or "") or PROCESSOR


TITAN_SHARE = 0.8
"""Part of these rates that torchtitan reaches: gaps, copies of FSDP2's buffers, kernels less tuned than Transformer
Engine's. The one figure taken from a run (8 GPUs, bf16, compiled: 6,667 tokens/s/GPU), for every torchtitan job."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Operations and bytes per second that a rank reaches, and seconds of latency; a platform times its fractions."""

    gemm: float
    gemm_8: float
    attention_forward: float
    attention_backward: float
    memory: float
    link: float
    nic: float
    peak: float
    latency_link: float = 8 * MICRO
    latency_nic: float = 20 * MICRO
    launch: float = 5 * MICRO
    source: str = ""

    def measured(self, figures: Mapping[str, float]) -> Rates:
        """Return the rates with measured ones in their place; names are those of the fields."""
        return replace(self, **figures, source=f"measured: {', '.join(sorted(figures))}; the others: {self.source}")


def rates_of(platform: PlatformConfig, setting: Setting, *, clock: float = 1.0) -> Rates | None:
    """Return the rates of a platform; None where its file lacks a peak or a bandwidth (a processor's does).

    `clock` slows what is computed, for hardware that runs below its usual power.
    """
    compute = setting.compute
    peak = platform.peak_tflops.get(compute)
    bandwidths = (platform.memory_bandwidth_gb_s, platform.link_bandwidth_gb_s)
    if peak is None or None in bandwidths:
        return None
    memory, link = (float(value or 0) * 1e9 for value in bandwidths)
    part = fractions_of(platform)
    half = compute != "float32"
    flops, eight = peak * 1e12, platform.peak_tflops.get("fp8", peak) * 1e12
    share = 1.0 if setting.megatron else TITAN_SHARE
    forward = part.attention_forward if setting.megatron else part.attention_2
    backward = part.attention_backward if setting.megatron else part.attention_2
    reached = flops * share * clock
    return Rates(
        gemm=reached * (part.gemm_16 if half else 0.8),
        gemm_8=eight * share * clock * part.gemm_8,
        attention_forward=reached * forward,
        attention_backward=reached * backward,
        memory=memory * part.memory * share,
        link=link * part.link,
        nic=float(platform.nic_bandwidth_gb_s or 0) * 1e9 * part.nic,
        peak=flops,
        source=part.source,
    )


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that talk: how many, and how many of them share a node."""

    ranks: int
    on_node: int

    @property
    def nodes(self) -> int:
        """Nodes that the group spans."""
        return -(-self.ranks // self.on_node)


def power_clock(limit_w: float, usual_w: float, *, static_w: float = 200.0) -> float:
    """Return how much slower a GPU runs at a lower limit of power, which goes as the clock cubed.

    `static_w` is what memory and leakage take at any clock (assumed).
    """
    return float(((limit_w - static_w) / (usual_w - static_w)) ** (1 / 3))


def group_of(ranks: int, stride: int, ranks_per_node: int) -> Group:
    """Return a group of `ranks`, every `stride`-th of the job."""
    return Group(ranks=ranks, on_node=max(1, min(ranks, ranks_per_node // stride if stride < ranks_per_node else 1)))


def bandwidth(rates: Rates, group: Group) -> float:
    """Return bytes per second and rank of a ring: links inside a node; across nodes as many adapters as ranks share."""
    if group.nodes == 1:
        return rates.link
    across = rates.nic * group.on_node
    return min(rates.link, across) if group.on_node > 1 else across


def gather_seconds(rates: Rates, group: Group, whole: float) -> float:
    """Return the time of an all-gather or a reduce-scatter of `whole` bytes: a ring of n - 1 steps.

    (Thakur et al. 2005, "Optimization of Collective Communication Operations in MPICH", 4.1; the latency of steps
    inside a node is hidden behind those across nodes.)
    """
    if group.ranks == 1 or whole == 0:
        return 0.0
    steps = group.nodes - 1 if group.nodes > 1 else group.ranks - 1
    latency = rates.latency_nic if group.nodes > 1 else rates.latency_link / 4
    return whole * (group.ranks - 1) / group.ranks / bandwidth(rates, group) + steps * latency + rates.latency_link


def reduce_seconds(rates: Rates, group: Group, whole: float) -> float:
    """Return the time of an all-reduce of `whole` bytes: the best of a ring, a tree, and one ring per node level."""
    if group.ranks == 1 or whole == 0:
        return 0.0
    ring = 2 * gather_seconds(rates, group, whole)
    depth = math.ceil(math.log2(group.ranks))
    latency = rates.latency_nic if group.nodes > 1 else rates.latency_link
    tree = 2 * whole / bandwidth(rates, group) + 2 * depth * latency
    if group.nodes == 1 or group.on_node == 1:
        return min(ring, tree)
    inside, across = Group(ranks=group.on_node, on_node=group.on_node), Group(ranks=group.nodes, on_node=1)
    levels = 2 * gather_seconds(rates, inside, whole) + 2 * gather_seconds(rates, across, whole / group.on_node)
    return min(ring, tree, levels)


def exchange_seconds(rates: Rates, group: Group, sent: float) -> float:
    """Return the time of an all-to-all in which a rank sends `sent` bytes in all: what leaves the node is slowest."""
    if group.ranks == 1 or sent == 0:
        return 0.0
    inside = sent * (group.on_node - 1) / group.ranks / rates.link
    outside = sent * (group.ranks - group.on_node) / group.ranks / rates.nic if group.nodes > 1 else 0.0
    return max(inside, outside) + (rates.latency_nic if group.nodes > 1 else rates.latency_link)
