"""The network hardware of this node: RDMA ports with their GIDs, IP interfaces, and the IPv4 routes.

Read from sysfs and procfs below a root, so it costs nothing, loads no driver's library and needs no tool. What cannot
be read is left out. The files are described in the kernel's Documentation/ABI/stable/sysfs-class-infiniband,
Documentation/ABI/testing/sysfs-class-infiniband (gid_attrs) and Documentation/ABI/testing/sysfs-class-net.
"""

from __future__ import annotations

import re
import socket
import sys
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path

LOOPBACK = "lo"

_ROUTE_UP = 0x1  # RTF_UP of linux/route.h
_ROUTE_REJECT = 0x200  # RTF_REJECT


@dataclass(frozen=True, kw_only=True)
class Gid:
    """An address of an RDMA port; `kind` is the kernel's word for it, `IB/RoCE v1` or `RoCE v2`."""

    index: int
    address: IPv6Address
    kind: str

    @property
    def routable(self) -> bool:
        """Whether RoCE v2 can reach it from another node: neither RoCE v1 nor link-local."""
        return self.kind == "RoCE v2" and not self.address.is_link_local


@dataclass(frozen=True, kw_only=True)
class RdmaPort:
    """One port of an RDMA device; `link_layer` is `InfiniBand` or `Ethernet`, `rate` is in Gb/s (0: unknown).

    `usable` says that the port is active and that this process can open the device's verbs node.
    """

    device: str
    port: int
    link_layer: str
    usable: bool
    rate: float = 0.0
    gids: tuple[Gid, ...] = ()

    @property
    def name(self) -> str:
        """The port as NCCL_IB_HCA names it."""
        return f"{self.device}:{self.port}"

    @property
    def roce_gid(self) -> Gid | None:
        """The GID for RoCE v2, IPv4 first: NCCL's own default family."""
        routable = [gid for gid in self.gids if gid.routable]
        return min(routable, key=lambda gid: (gid.address.ipv4_mapped is None, gid.index), default=None)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """An IP interface; `down` is the kernel's word, `speed` is in Mb/s (0: unknown)."""

    name: str
    down: bool = False
    speed: int = 0


@dataclass(frozen=True, kw_only=True)
class Route:
    """An IPv4 route that is up."""

    interface: str
    network: IPv4Network
    metric: int = 0


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """What a node has to talk with."""

    ports: tuple[RdmaPort, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    routes: tuple[Route, ...] = ()

    def route_to(self, address: IPv4Address) -> Route | None:
        """Return the route that the kernel would take: the longest prefix, then the smallest metric."""
        fitting = [route for route in self.routes if address in route.network]
        return min(fitting, key=lambda route: (-route.network.prefixlen, route.metric), default=None)

    @property
    def default_route(self) -> Route | None:
        """The default route with the smallest metric."""
        fitting = [route for route in self.routes if route.network.prefixlen == 0]
        return min(fitting, key=lambda route: route.metric, default=None)


def read_network(root: Path = Path("/")) -> NetworkFacts:
    """Read what the node has, below `root`; interfaces are those of this process's network namespace if /sys is."""
    routes = tuple(_routes(root / "proc/net/route"))
    found = {path.name: _interface(path) for path in sorted((root / "sys/class/net").glob("*")) if path.is_dir()}
    # The routes are always of our own namespace; /sys may have been mounted in another.
    found |= {route.interface: Interface(name=route.interface) for route in routes if route.interface not in found}
    return NetworkFacts(ports=tuple(_ports(root)), interfaces=tuple(found.values()), routes=routes)


def address_of(host: str) -> IPv4Address | None:
    """Return an address of another host; None where its name is not known, or stands for this machine's loopback."""
    try:
        address = IPv4Address(socket.gethostbyname(host))
    except OSError:
        return None
    return None if address.is_loopback else address


def _interface(folder: Path) -> Interface:
    speed = _read(folder / "speed")
    return Interface(
        name=folder.name,
        down=_read(folder / "operstate") in ("down", "lowerlayerdown", "notpresent"),
        speed=int(speed) if speed.isdigit() else 0,  # -1 or no answer: a virtual interface, or one without a link
    )


def _routes(file: Path) -> list[Route]:
    rows = [line.split() for line in _read(file).splitlines()[1:]]
    found = []
    for row in (row for row in rows if len(row) > 7):
        flags = int(row[3], 16)
        if flags & _ROUTE_UP and not flags & _ROUTE_REJECT:
            network = IPv4Network((_ipv4(row[1]), str(_ipv4(row[7]))), strict=False)
            found.append(Route(interface=row[0], network=network, metric=int(row[6])))
    return found


def _ipv4(text: str) -> IPv4Address:
    """Read an address as procfs prints it: the number of the bytes in memory, in the machine's own order."""
    return IPv4Address(int(text, 16).to_bytes(4, sys.byteorder))


def _ports(root: Path) -> list[RdmaPort]:
    folders = (root / "sys/class/infiniband").glob("*/ports/*")
    ports = [_port(root, folder) for folder in folders if folder.name.isdigit()]
    return sorted(ports, key=lambda port: (_natural(port.device), port.port))


def _port(root: Path, folder: Path) -> RdmaPort:
    device = folder.parent.parent
    rate = re.match(r"[0-9.]+", _read(folder / "rate"))
    return RdmaPort(
        device=device.name,
        port=int(folder.name),
        link_layer=_read(folder / "link_layer"),
        usable="ACTIVE" in _read(folder / "state").split() and _can_be_opened(root, device),
        rate=float(rate[0]) if rate else 0.0,
        gids=tuple(_gids(folder)),
    )


def _can_be_opened(root: Path, device: Path) -> bool:
    """Whether the device's verbs node is there: a container may see the hardware in sysfs and not have the device."""
    names = [path.name for path in (device / "device/infiniband_verbs").glob("uverbs*")]
    return any((root / "dev/infiniband" / name).exists() for name in names)


def _gids(folder: Path) -> list[Gid]:
    indices = sorted(int(file.name) for file in (folder / "gids").glob("*") if file.name.isdigit())
    found = []
    for index in indices:
        # An empty slot is all zeros, and its type cannot be read at all.
        address, kind = _read(folder / f"gids/{index}"), _read(folder / f"gid_attrs/types/{index}")
        if kind and address.strip("0:"):
            found.append(Gid(index=index, address=IPv6Address(address), kind=kind))
    return found


def _natural(name: str) -> tuple[str, int]:
    head, digits = re.fullmatch(r"(.*?)([0-9]*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return head, int(digits or 0)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
