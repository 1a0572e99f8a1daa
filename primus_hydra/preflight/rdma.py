"""The RDMA ports that a job would use, by the words that NCCL and RCCL read in NCCL_IB_HCA. Pure.

The words (NCCL user guide, environment variables, NCCL_IB_HCA): a list of prefixes of device names, `device:port` for
one port; `=` in front asks for whole names, `^` leaves out, `^=` leaves out whole names.
"""

from __future__ import annotations

from collections.abc import Sequence

from primus_hydra.host.network import RdmaPort
from primus_hydra.preflight.finding import Finding

VARIABLE = "NCCL_IB_HCA"


def selected_ports(ports: Sequence[RdmaPort], words: str | None) -> list[RdmaPort]:
    """Return the ports that the words select; all without words."""
    text = (words or "").strip()
    if not text:
        return list(ports)
    out, text = text.startswith("^"), text.removeprefix("^")
    exact, text = text.startswith("="), text.removeprefix("=")
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [port for port in ports if any(_names(name, port, exact=exact) for name in names) != out]


def missing_names(ports: Sequence[RdmaPort], words: str | None) -> list[str]:
    """Return the names among the words that select no port at all; what is left out need not be there."""
    text = (words or "").strip()
    if not text or text.startswith("^"):
        return []
    exact, text = text.startswith("="), text.removeprefix("=")
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [name for name in names if not any(_names(name, port, exact=exact) for port in ports)]


def rdma_finding(ports: Sequence[RdmaPort], words: str | None, *, wanted: bool) -> Finding:
    """Judge the ports of a node; `wanted`: the job asks for InfiniBand or RoCE by name."""
    absent = missing_names(ports, words)
    if absent:
        return Finding(test="rdma", word="fail", detail=f"{VARIABLE}={words}: no port is called {', '.join(absent)}")
    chosen = selected_ports(ports, words)
    if not chosen:
        none = "there is no RDMA port on this node"
        return Finding(test="rdma", word="fail" if wanted or words else "skip", detail=none)
    down = [port.name for port in chosen if not port.usable]
    if down and (words or len(down) == len(chosen)):
        detail = f"{', '.join(down)} of {len(chosen)} ports not active, or their device cannot be opened"
        return Finding(test="rdma", word="fail", detail=detail, value=len(chosen) - len(down), limit=len(chosen))
    slowest = min(port.rate for port in chosen if port.usable)
    # A port that nobody plugged in is no fault unless somebody wants it; `versions` sees where only one node lacks it.
    unused = f"; {', '.join(down)} down" if down else ""
    active = f"{len(chosen) - len(down)} ports active, the slowest at {slowest:g} Gb/s{unused}"
    return Finding(test="rdma", word="pass", detail=active)


def _names(name: str, port: RdmaPort, *, exact: bool) -> bool:
    device, colon, number = name.partition(":")
    if colon and number != str(port.port):
        return False
    return port.device == device if exact else port.device.startswith(device)
