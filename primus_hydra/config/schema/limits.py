"""What a node must reach to pass a preflight. Part of a platform's facts, so that each kind of node has its own."""

from __future__ import annotations

from dataclasses import dataclass

from primus_hydra.config.schema.key import key


@dataclass(frozen=True, kw_only=True)
class LimitsConfig:
    """Limits of a preflight; null: no limit of its own (a rate is then held against the platform's peak or peers)."""

    gemm_tflops: float | None = key(
        None, "A GPU's matrix product; null: a fraction of the bfloat16 peak.", unit="TFLOP/s", gt=0
    )
    gemm_fraction: float = key(0.45, "The fraction of that peak, where gemm_tflops is null.", gt=0, le=1)
    copy_gb_s: float | None = key(
        None, "A copy in a GPU's memory, read and write counted; null: a fraction of its bandwidth.", unit="GB/s", gt=0
    )
    copy_fraction: float = key(0.4, "The fraction of that bandwidth, where copy_gb_s is null.", gt=0, le=1)
    local_gb_s: float | None = key(
        None, "Bus bandwidth of collectives in a node; null: a fraction of the link's.", unit="GB/s", gt=0
    )
    local_fraction: float = key(0.22, "The fraction of the link's bandwidth, where local_gb_s is null.", gt=0, le=1)
    network_gb_s: float | None = key(
        None, "Bus bandwidth between nodes, per GPU; null: a fraction of the adapter's.", unit="GB/s", gt=0
    )
    network_fraction: float = key(
        0.4, "The fraction of the adapter's bandwidth, where network_gb_s is null.", gt=0, le=1
    )
    peer_fraction: float = key(
        0.5, "What a node must reach of the median of its peers, whatever the limits.", gt=0, le=1
    )
    collective_fraction: float = key(
        0.1, "What a collective over all nodes must reach of the median pair, where no limit is known.", gt=0, le=1
    )
    memlock_gib: float | None = key(32.0, "Memory that may be locked, where RDMA is used.", unit="GiB", gt=0)
    shm_gib: float | None = key(8.0, "Size of /dev/shm.", unit="GiB", gt=0)
    disk_free_gib: float = key(1.0, "Free space where runs are written.", unit="GiB", ge=0)
    disk_mb_s: float | None = key(None, "Writing there, until it is on the disk.", unit="MB/s", gt=0)
    clock_skew_s: float = key(5.0, "How far a clock may be from the first node's.", unit="s", gt=0)
    tool_s: float = key(5.0, "How long the driver's tool may take to list the GPUs.", unit="s", gt=0)
    memory_busy_gib: float = key(2.0, "Memory of a GPU that may be in use before anything starts.", unit="GiB", ge=0)
    kernel_log_minutes: float = key(15.0, "How far back the kernel's log is searched for errors.", unit="min", gt=0)
