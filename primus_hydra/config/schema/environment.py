"""What decides environment variables of the ranks: the network between nodes, and how strictly results repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.schema.key import key


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """How ranks on several nodes talk; each node looks at its own hardware. A job on one node needs none of this."""

    kind: Literal["auto", "ib", "roce", "tcp"] = key(
        "auto", "InfiniBand, RDMA over Ethernet, or TCP; auto takes the first of them that the node has."
    )
    interfaces: list[str] = key([], "IP interfaces, by name or glob (ens*); none: that of the default route.")
    hcas: list[str] = key([], "RDMA ports, by name or glob (mlx5_*, mlx5_0:1); none: the fastest active ones.")
    gid_index: int | None = key(None, "RoCE: index of the GID of every port; null: found on the node.", ge=0)


@dataclass(frozen=True, kw_only=True)
class DeterminismConfig:
    """Libraries whose results may change from run to run; the kernels are chosen by training.deterministic."""

    mode: Literal["off", "strict"] = key("off", "strict: pin every library that documents how.")
