"""The network variables of one node, from the configuration and from what the node has; pure.

Each node decides for itself: device names, interface names and GID indices differ between nodes. On one node nothing is
set, as everything stays inside it. Refuses a network that the node cannot serve.

What the variables mean: NCCL user guide, "Environment Variables", system configuration (NCCL_SOCKET_IFNAME,
NCCL_IB_HCA, NCCL_IB_GID_INDEX, NCCL_NET) and debugging (NCCL_IB_DISABLE); RCCL reads the same names (RCCL
documentation, "RCCL environment variables"); GLOO_SOCKET_IFNAME: PyTorch documentation of torch.distributed, "Choosing
the network interface to use".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address
from typing import Literal

from primus_hydra.config.schema import NetworkConfig
from primus_hydra.errors import HostError, Problem
from primus_hydra.host.network import LOOPBACK, Interface, NetworkFacts, RdmaPort
from primus_hydra.launch.environment import EnvVariable

Kind = Literal["ib", "roce", "tcp"]

_LINK_LAYERS: dict[Kind, str] = {"ib": "InfiniBand", "roce": "Ethernet"}
_WORDS: dict[Kind, str] = {"ib": "InfiniBand", "roce": "RoCE"}


def network_variables(
    config: NetworkConfig,
    facts: NetworkFacts,
    nodes: int,
    *,
    peer: IPv4Address | None = None,
    on_gpus: bool = True,
) -> list[EnvVariable]:
    """Return the variables for the ranks of the node that `facts` are of; none where the job has one node.

    `peer` is an address of another node: the interface of the route to it is taken, instead of the default route's.
    Ranks on CPUs (`on_gpus=False`) talk over gloo alone. Raises HostError with everything that the node lacks.
    """
    if nodes == 1:
        return []
    decision = _decide(config, facts, peer, on_gpus=on_gpus)
    if decision.problems:
        raise HostError(*decision.problems)
    return list(decision.variables)


def network_problems(
    config: NetworkConfig,
    facts: NetworkFacts,
    nodes: int,
    *,
    peer: IPv4Address | None = None,
    on_gpus: bool = True,
) -> list[Problem]:
    """Return what this node lacks for the network that was asked for; arguments as for `network_variables`."""
    return [] if nodes == 1 else list(_decide(config, facts, peer, on_gpus=on_gpus).problems)


@dataclass(frozen=True, kw_only=True)
class _Decision:
    variables: tuple[EnvVariable, ...] = ()
    problems: tuple[Problem, ...] = ()


def _decide(config: NetworkConfig, facts: NetworkFacts, peer: IPv4Address | None, *, on_gpus: bool) -> _Decision:
    names, why, problems = _interfaces(config, facts, peer)
    asked = bool(config.interfaces)
    variables = [_variable("GLOO_SOCKET_IFNAME", names[0], why, asked)] if names else []
    if on_gpus:
        # Without the = a name is a prefix: eth1 would be eth10 too.
        variables += [_variable("NCCL_SOCKET_IFNAME", f"={','.join(names)}", why, asked)] if names else []
        fabric, more = _fabric(config, facts)
        variables += fabric
        problems += more
    return _Decision(variables=tuple(variables), problems=tuple(problems))


def _variable(name: str, value: str, reason: str, asked: bool) -> EnvVariable:
    return EnvVariable(name=name, value=value, reason=reason, over_shell=asked, own=True)


def _interfaces(
    config: NetworkConfig, facts: NetworkFacts, peer: IPv4Address | None
) -> tuple[list[str], str, list[Problem]]:
    """Return the interfaces, why these, and what is wrong."""
    if config.interfaces:
        return _named_interfaces(config.interfaces, facts)
    route = facts.default_route if peer is None else facts.route_to(peer) or facts.default_route
    if route is not None and route.interface != LOOPBACK:
        towards = f"interface of the route to {peer}" if route.network.prefixlen else "interface of the default route"
        return [route.interface], towards, []
    fallback = _fastest_interface(facts)
    if fallback is None:
        what = "this node has no IP interface to reach the other nodes by"
        hint = "ip route shows the routes; set network.interfaces to the one to use"
        return [], "", [Problem(key="network.interfaces", what=what, hint=hint)]
    return [fallback.name], "there is no default route; the fastest interface that is up", []


def _fastest_interface(facts: NetworkFacts) -> Interface | None:
    """Choose among the interfaces with a route, or without any route among all."""
    routed = {route.interface for route in facts.routes}
    candidates = [
        interface
        for interface in facts.interfaces
        if not interface.down and interface.name != LOOPBACK and (not routed or interface.name in routed)
    ]
    return min(candidates, key=lambda interface: (-interface.speed, interface.name), default=None)


def _named_interfaces(wanted: Sequence[str], facts: NetworkFacts) -> tuple[list[str], str, list[Problem]]:
    names = [interface.name for interface in facts.interfaces]
    chosen, problems = _matched("network.interfaces", wanted, names, lambda name, text: fnmatchcase(name, text))
    down = {interface.name for interface in facts.interfaces if interface.down}
    up = [name for name in chosen if name not in down]
    if chosen and not up:
        what = f"{', '.join(chosen)} of this node is down"
        problems.append(Problem(key="network.interfaces", what=what, hint="ip link shows the interfaces"))
    return up, "network.interfaces", problems


def _matched(
    key: str, wanted: Sequence[str], names: Sequence[str], fits: Callable[[str, str], bool]
) -> tuple[list[str], list[Problem]]:
    """Return the names that are wanted, in the order of the wishes, and a problem for each wish that nothing meets."""
    chosen: dict[str, None] = {}
    problems = []
    for text in wanted:
        found = [name for name in names if fits(name, text)]
        chosen |= dict.fromkeys(found)
        if not found:
            what = f"this node has no {text}; it has {', '.join(names) or 'none at all'}"
            problems.append(Problem(key=key, what=what, hint=f"change {key}, by name or glob"))
    return list(chosen), problems


def _fabric(config: NetworkConfig, facts: NetworkFacts) -> tuple[list[EnvVariable], list[Problem]]:
    """Decide between RDMA and sockets."""
    kind, ports, problems = _rdma(config, facts)
    if problems:
        return [], problems
    if kind is None:
        return _sockets(config), []
    asked = config.kind != "auto" or bool(config.hcas)
    speed = f" of {ports[0].rate:g} Gb/s" if ports[0].rate else ""
    why = "network.hcas" if config.hcas else f"{len(ports)} active {_WORDS[kind]} port(s){speed}"
    variables = [_variable("NCCL_IB_HCA", f"={','.join(port.name for port in ports)}", why, asked)]
    if asked:
        variables.append(_variable("NCCL_IB_DISABLE", "0", f"network.kind={kind}", True))
    if kind == "roce":
        variables += _gid_index(config, ports)
    return variables, []


def _sockets(config: NetworkConfig) -> list[EnvVariable]:
    asked = config.kind == "tcp"
    why = "network.kind=tcp" if asked else "no active RDMA port: sockets"
    variables = [_variable("NCCL_IB_DISABLE", "1", why, asked)]
    if asked:
        # Only where sockets were asked for: a plugin for a network that sysfs does not show must stay possible.
        variables.append(_variable("NCCL_NET", "Socket", "network.kind=tcp: no plugin for another network", True))
    return variables


def _rdma(config: NetworkConfig, facts: NetworkFacts) -> tuple[Kind | None, list[RdmaPort], list[Problem]]:
    """Return the kind of RDMA and its ports; no kind means sockets."""
    if config.kind == "tcp":
        return None, [], []
    wanted, problems = list(facts.ports), list[Problem]()
    if config.hcas:
        names, problems = _matched("network.hcas", config.hcas, [port.name for port in facts.ports], _is_port)
        wanted = [port for name in names for port in facts.ports if port.name == name]
    kinds: tuple[Kind, ...] = ("ib", "roce") if config.kind == "auto" else (config.kind,)
    for kind in kinds:
        fit = [port for port in wanted if _serves(port, kind, config)]
        if fit:
            return kind, fit if config.hcas else _fastest(fit), problems
    if config.kind != "auto" or (config.hcas and not problems):
        problems = [*problems, _nothing(config, kinds, wanted)]
    return None, [], problems


def _is_port(name: str, text: str) -> bool:
    return fnmatchcase(name, text if re.search(r":[^:]*$", text) else f"{text}:*")


def _serves(port: RdmaPort, kind: Kind, config: NetworkConfig) -> bool:
    if not port.usable or port.link_layer != _LINK_LAYERS[kind]:
        return False
    return kind == "ib" or port.roce_gid is not None or config.gid_index is not None


def _fastest(ports: Sequence[RdmaPort]) -> list[RdmaPort]:
    """Leave out slower ports: beside the fabric of the GPUs a node often has one for storage or for its users."""
    fastest = max(port.rate for port in ports)
    return [port for port in ports if port.rate == fastest]


def _gid_index(config: NetworkConfig, ports: Sequence[RdmaPort]) -> list[EnvVariable]:
    """Return the index of the RoCE v2 GID; NCCL has one number for all ports, and finds them itself without it."""
    if config.gid_index is not None:
        return [_variable("NCCL_IB_GID_INDEX", str(config.gid_index), "network.gid_index", True)]
    indices = {port.roce_gid.index for port in ports if port.roce_gid is not None}
    if len(indices) != 1:
        return []
    (index,) = indices
    asked = config.kind != "auto" or bool(config.hcas)
    return [_variable("NCCL_IB_GID_INDEX", str(index), "index of the RoCE v2 GID on every port", asked)]


def _nothing(config: NetworkConfig, kinds: Sequence[Kind], ports: Sequence[RdmaPort]) -> Problem:
    key = "network.hcas" if config.hcas else "network.kind"
    words = " or ".join(_WORDS[kind] for kind in kinds)
    seen = "; ".join(f"{port.name}: {_state(port)}" for port in ports) or "no RDMA device in /sys/class/infiniband"
    hint = "take network=tcp or network=auto, or mend the port; in a container it needs /dev/infiniband"
    return Problem(key=key, what=f"this node has no {words} port that could be used ({seen})", hint=hint)


def _state(port: RdmaPort) -> str:
    if not port.usable:
        return f"{port.link_layer or 'unknown link layer'}, not active or not to be opened"
    if port.link_layer == "Ethernet" and port.roce_gid is None:
        return "Ethernet, without a routable RoCE v2 GID"
    return port.link_layer or "unknown link layer"
