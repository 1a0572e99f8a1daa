"""What a node can talk with is read from files, whatever is missing or odd among them."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from primus_hydra.host.network import NetworkFacts, address_of, read_network
from tests.unit.host.machines import write
from tests.unit.host.networks import ANYWHERE, LINK_LOCAL, interfaces, mapped, rdma_port, routes


def test_a_machine_without_network_files_has_nothing(tmp_path):
    assert read_network(tmp_path) == NetworkFacts()


def test_ports_are_in_the_order_of_their_numbers(tmp_path):
    for device in ("mlx5_10", "mlx5_2", "mlx5_1"):
        rdma_port(tmp_path, device)
    assert [port.name for port in read_network(tmp_path).ports] == ["mlx5_1:1", "mlx5_2:1", "mlx5_10:1"]


@pytest.mark.parametrize(
    ("given", "usable"),
    [
        ({}, True),
        ({"state": "1: DOWN"}, False),
        ({"state": "2: INIT"}, False),
        ({"verbs": None}, False),  # a container that was not given /dev/infiniband
    ],
)
def test_a_port_is_usable_when_it_is_active_and_can_be_opened(tmp_path, given, usable):
    (port,) = read_network(rdma_port(tmp_path, "mlx5_0", **given)).ports
    assert port.usable is usable
    assert port.rate == 400


def test_a_rate_that_cannot_be_read_is_unknown(tmp_path):
    assert read_network(rdma_port(tmp_path, "mlx5_0", rate="")).ports[0].rate == 0


GIDS = [(LINK_LOCAL, "IB/RoCE v1"), (LINK_LOCAL, "RoCE v2"), (mapped("10.0.0.7"), "IB/RoCE v1")]


@pytest.mark.parametrize(
    ("more", "index"),
    [
        ([(mapped("10.0.0.7"), "RoCE v2")], 3),
        ([("2001:db8::7", "RoCE v2")], 3),
        ([("2001:db8::7", "RoCE v2"), (mapped("10.0.0.7"), "RoCE v2")], 4),  # IPv4 first
        ([("", ""), (mapped("10.0.0.7"), "RoCE v2")], 4),  # an empty slot
        ([], None),  # link-local addresses reach no other node
    ],
)
def test_the_gid_for_roce_is_a_routable_one_of_version_two(tmp_path, more, index):
    (port,) = read_network(rdma_port(tmp_path, "mlx5_0", layer="Ethernet", gids=[*GIDS, *more])).ports
    assert (port.roce_gid.index if port.roce_gid else None) == index


def test_the_default_route_is_the_one_with_the_smallest_metric(tmp_path):
    routes(tmp_path, {ANYWHERE: ("wlan0", 600)})
    text = (tmp_path / "proc/net/route").read_text()
    second = text.splitlines()[1].replace("wlan0", "eth0").replace("600", "100")
    write(tmp_path, {"proc/net/route": f"{text}{second}\n"})
    facts = read_network(tmp_path)
    assert [route.interface for route in facts.routes] == ["wlan0", "eth0"]
    assert facts.default_route.interface == "eth0"


def test_the_route_to_an_address_is_the_one_with_the_longest_prefix(tmp_path):
    facts = read_network(
        routes(tmp_path, {ANYWHERE: "eth0", ("10.0.0.0", "255.0.0.0"): "ib0", ("10.1.0.0", "255.255.0.0"): "ib1"})
    )
    assert facts.route_to(IPv4Address("10.1.2.3")).interface == "ib1"
    assert facts.route_to(IPv4Address("10.2.2.3")).interface == "ib0"
    assert facts.route_to(IPv4Address("192.168.0.1")).interface == "eth0"


def test_a_route_that_refuses_is_none(tmp_path):
    routes(tmp_path, {ANYWHERE: "eth0"})
    text = (tmp_path / "proc/net/route").read_text()
    write(tmp_path, {"proc/net/route": text.replace("0003", "0203")})
    assert read_network(tmp_path).default_route is None


def test_interfaces_have_speed_and_state_and_routes_name_more_of_them(tmp_path):
    facts = read_network(routes(interfaces(tmp_path, eth0=25_000, eth1=None), {ANYWHERE: "veth7"}))
    assert {i.name: (i.down, i.speed) for i in facts.interfaces} == {
        "lo": (False, 0),
        "eth0": (False, 25_000),
        "eth1": (True, 0),
        "veth7": (False, 0),
    }


def test_this_very_machine_can_be_read():
    facts = read_network()
    assert "lo" in {interface.name for interface in facts.interfaces}


def test_a_name_that_means_this_machine_itself_is_no_address_of_another():
    assert address_of("localhost") is None
    assert address_of("no-such-host.invalid") is None
    assert address_of("10.213.7.11") == IPv4Address("10.213.7.11")
