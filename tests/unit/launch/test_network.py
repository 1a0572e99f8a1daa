"""Which network variables a node gets, from what it has and what was asked for; or why it gets none."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.schema import NetworkConfig
from primus_hydra.errors import HostError
from primus_hydra.host.network import NetworkFacts, read_network
from primus_hydra.launch.network import network_problems, network_variables
from tests.unit.host.networks import ANYWHERE, LINK_LOCAL, interfaces, mapped, rdma_port, routes

V2 = [(LINK_LOCAL, "RoCE v2"), (mapped("10.0.0.7"), "IB/RoCE v1"), (mapped("10.0.0.7"), "RoCE v2")]


def ethernet(root: Path) -> Path:
    return routes(interfaces(root, eth0=25_000, eth1=100_000, ib0=None), {ANYWHERE: "eth0"})


def infiniband(root: Path) -> Path:
    for number in range(2):
        rdma_port(root, f"mlx5_{number}")
    rdma_port(root, "mlx5_2", layer="Ethernet", rate="100 Gb/sec (4X EDR)", gids=V2)
    return rdma_port(ethernet(root), "mlx5_3", state="1: DOWN")


def roce(root: Path) -> Path:
    for number in range(2):
        rdma_port(root, f"bnxt_re{number}", layer="Ethernet", gids=V2)
    rdma_port(root, "bnxt_re8", layer="Ethernet", rate="100 Gb/sec (4X EDR)", gids=V2)  # storage
    return rdma_port(ethernet(root), "bnxt_re9", layer="Ethernet", gids=V2[:1])  # no routable address


def decided(facts: NetworkFacts, nodes: int = 2, *, on_gpus: bool = True, **keys: Any) -> dict[str, str]:
    found = network_variables(NetworkConfig(**keys), facts, nodes, on_gpus=on_gpus)
    assert all(variable.reason for variable in found)
    assert all(variable.own for variable in found)
    return {variable.name: variable.value for variable in found}


SOCKETS = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}


def test_a_job_on_one_node_gets_nothing(tmp_path):
    assert decided(read_network(infiniband(tmp_path)), nodes=1, kind="ib") == {}
    assert network_problems(NetworkConfig(kind="ib"), NetworkFacts(), 1) == []


def test_auto_takes_the_active_infiniband_ports(tmp_path):
    assert decided(read_network(infiniband(tmp_path))) == SOCKETS | {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}


def test_auto_takes_roce_over_the_fastest_ports_that_have_a_routable_gid(tmp_path):
    assert decided(read_network(roce(tmp_path))) == SOCKETS | {
        "NCCL_IB_HCA": "=bnxt_re0:1,bnxt_re1:1",
        "NCCL_IB_GID_INDEX": "2",
    }


def test_auto_takes_sockets_where_there_is_no_rdma_and_leaves_plugins_alone(tmp_path):
    assert decided(read_network(ethernet(tmp_path))) == SOCKETS | {"NCCL_IB_DISABLE": "1"}


def test_ports_that_a_container_cannot_open_are_not_taken(tmp_path):
    root = rdma_port(ethernet(tmp_path), "mlx5_0", verbs=None)
    assert decided(read_network(root))["NCCL_IB_DISABLE"] == "1"


def test_tcp_by_name_turns_off_rdma_and_plugins(tmp_path):
    found = decided(read_network(infiniband(tmp_path)), kind="tcp")
    assert found == SOCKETS | {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}


def test_roce_by_name_leaves_infiniband_alone(tmp_path):
    found = decided(read_network(infiniband(tmp_path)), kind="roce")
    assert found["NCCL_IB_HCA"] == "=mlx5_2:1"
    assert found["NCCL_IB_DISABLE"] == "0"  # whatever a shell exports


def test_ranks_on_cpus_get_gloo_s_interface_only(tmp_path):
    assert decided(read_network(infiniband(tmp_path)), on_gpus=False, kind="ib") == {"GLOO_SOCKET_IFNAME": "eth0"}


def test_gids_at_different_places_are_left_to_nccl(tmp_path):
    rdma_port(tmp_path, "rocep1", layer="Ethernet", gids=V2)
    rdma_port(ethernet(tmp_path), "rocep2", layer="Ethernet", gids=V2[1:])
    found = decided(read_network(tmp_path))
    assert found["NCCL_IB_HCA"] == "=rocep1:1,rocep2:1"
    assert "NCCL_IB_GID_INDEX" not in found
    assert decided(read_network(tmp_path), gid_index=5)["NCCL_IB_GID_INDEX"] == "5"


@pytest.mark.parametrize(
    ("keys", "name", "value"),
    [
        ({"interfaces": ["eth1"]}, "NCCL_SOCKET_IFNAME", "=eth1"),
        ({"interfaces": ["eth*"]}, "NCCL_SOCKET_IFNAME", "=eth0,eth1"),
        ({"interfaces": ["eth1", "eth0"]}, "GLOO_SOCKET_IFNAME", "eth1"),  # gloo wants as many on every node
        ({"hcas": ["mlx5_1"]}, "NCCL_IB_HCA", "=mlx5_1:1"),
        ({"hcas": ["mlx5_[01]:1"]}, "NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
        ({"hcas": ["mlx5_2"]}, "NCCL_IB_HCA", "=mlx5_2:1"),  # slower than others, but asked for
    ],
)
def test_what_is_asked_for_is_taken_and_wins_over_the_shell(tmp_path, keys, name, value):
    found = network_variables(NetworkConfig(**keys), read_network(infiniband(tmp_path)), 2)
    (variable,) = [variable for variable in found if variable.name == name]
    assert variable.value == value
    assert variable.over_shell


def test_what_was_only_found_does_not_win_over_the_shell(tmp_path):
    found = network_variables(NetworkConfig(), read_network(infiniband(tmp_path)), 2)
    assert not [variable.name for variable in found if variable.over_shell]


def test_the_interface_towards_another_node_comes_before_the_default_route(tmp_path):
    facts = read_network(routes(ethernet(tmp_path), {ANYWHERE: "eth0", ("10.9.0.0", "255.255.0.0"): "eth1"}))
    found = network_variables(NetworkConfig(), facts, 2, peer=IPv4Address("10.9.1.1"))
    assert found[0].value == "eth1"
    assert "10.9.1.1" in found[0].reason


def test_without_a_default_route_the_fastest_interface_with_a_route_is_taken(tmp_path):
    interfaces(tmp_path, eth0=1_000, eth1=100_000, eth2=400_000)
    routes(tmp_path, {("10.0.0.0", "255.0.0.0"): "eth0", ("10.9.0.0", "255.255.0.0"): "eth1"})
    assert decided(read_network(tmp_path), on_gpus=False) == {"GLOO_SOCKET_IFNAME": "eth1"}


@pytest.mark.parametrize(
    ("machine", "keys", "key", "what"),
    [
        (ethernet, {"kind": "ib"}, "network.kind", "no InfiniBand port that could be used"),
        (roce, {"kind": "ib"}, "network.kind", "bnxt_re0:1: Ethernet"),
        (infiniband, {"kind": "ib", "hcas": ["mlx5_3"]}, "network.hcas", "mlx5_3:1: InfiniBand, not active"),
        (roce, {"kind": "roce", "hcas": ["bnxt_re9"]}, "network.hcas", "without a routable RoCE v2 GID"),
        (roce, {"hcas": ["mlx5_0"]}, "network.hcas", "no mlx5_0; it has bnxt_re0:1"),
        (ethernet, {"interfaces": ["bond0"]}, "network.interfaces", "no bond0; it has"),
        (ethernet, {"interfaces": ["ib0"]}, "network.interfaces", "ib0 of this node is down"),
        (interfaces, {}, "network.interfaces", "no IP interface"),
    ],
)
def test_what_a_node_cannot_serve_is_a_problem_before_the_start(tmp_path, machine, keys, key, what):
    facts = read_network(machine(tmp_path))
    problems = network_problems(NetworkConfig(**keys), facts, 2)
    assert [problem.key for problem in problems] == [key]
    assert what in problems[0].what
    with pytest.raises(HostError):
        network_variables(NetworkConfig(**keys), facts, 2)
