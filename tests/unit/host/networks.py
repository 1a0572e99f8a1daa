"""Network hardware that is not here: the files by which the kernel tells of RDMA ports, interfaces and routes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from tests.unit.host.machines import write

LINK_LOCAL = "fe80::a288:c2ff:fe3b:506a"


def mapped(address: str) -> str:
    return f"::ffff:{address}"


def rdma_port(
    root: Path,
    device: str,
    *,
    port: int = 1,
    layer: str = "InfiniBand",
    state: str = "4: ACTIVE",
    rate: str = "400 Gb/sec (4X NDR)",
    gids: Sequence[tuple[str, str]] = (),
    verbs: str | None = "uverbs0",
) -> Path:
    """One port; `gids` are addresses and kinds, of which an empty one is an empty slot; `verbs` is the device node."""
    base = f"sys/class/infiniband/{device}"
    files = {
        f"{base}/ports/{port}/state": state,
        f"{base}/ports/{port}/link_layer": layer,
        f"{base}/ports/{port}/rate": rate,
        f"{base}/device/infiniband_verbs/{verbs or 'uverbs0'}/ibdev": device,
    }
    for index, (address, kind) in enumerate(gids):
        exploded = IPv6Address(address).exploded if address else ":".join(["0000"] * 8)
        files[f"{base}/ports/{port}/gids/{index}"] = f"{exploded}\n"
        if kind:
            files[f"{base}/ports/{port}/gid_attrs/types/{index}"] = f"{kind}\n"
    if verbs:
        files[f"dev/infiniband/{verbs}"] = ""
    return write(root, files)


def interfaces(root: Path, **speeds: int | None) -> Path:
    """Interfaces by name with their speed in Mb/s; None is one without a link."""
    files = {}
    for name, speed in {"lo": -1, **speeds}.items():
        state = "unknown" if name == "lo" else "down" if speed is None else "up"
        files[f"sys/class/net/{name}/operstate"] = f"{state}\n"
        files[f"sys/class/net/{name}/speed"] = f"{-1 if speed is None else speed}\n"
    return write(root, files)


def routes(root: Path, rows: Mapping[tuple[str, str], str | tuple[str, int]]) -> Path:
    """Routes as {(destination, mask): interface, or (interface, metric)}, printed as the kernel does."""
    lines = ["Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"]
    for (destination, mask), target in rows.items():
        name, metric = target if isinstance(target, tuple) else (target, 0)
        words = (name, hexed(destination), "00000000", "0003", "0", "0", str(metric), hexed(mask), "0", "0", "0")
        lines.append("\t".join(words))
    return write(root, {"proc/net/route": "\n".join(lines) + "\n"})


def hexed(address: str) -> str:
    return f"{int.from_bytes(IPv4Address(address).packed, sys.byteorder):08X}"


ANYWHERE = ("0.0.0.0", "0.0.0.0")
