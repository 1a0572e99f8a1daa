"""RDMA ports, by the words of NCCL_IB_HCA."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.host.network import RdmaPort, read_network
from primus_hydra.preflight.rdma import rdma_finding, selected_ports
from tests.unit.host.networks import rdma_port


def port(device: str, number: int = 1, *, usable: bool = True) -> RdmaPort:
    return RdmaPort(device=device, port=number, link_layer="InfiniBand", usable=usable, rate=400.0)


PORTS = [port("mlx5_0"), port("mlx5_1"), port("mlx5_1", 2), port("mlx5_10"), port("bnxt_re0")]


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        (None, ["mlx5_0:1", "mlx5_1:1", "mlx5_1:2", "mlx5_10:1", "bnxt_re0:1"]),
        ("mlx5_1", ["mlx5_1:1", "mlx5_1:2", "mlx5_10:1"]),
        ("=mlx5_1", ["mlx5_1:1", "mlx5_1:2"]),
        ("=mlx5_1:2,bnxt_re0", ["mlx5_1:2", "bnxt_re0:1"]),
        ("^mlx5", ["bnxt_re0:1"]),
        ("^=mlx5_1,mlx5_0", ["mlx5_10:1", "bnxt_re0:1"]),
    ],
)
def test_the_words_select_ports_as_nccl_does(words: str | None, selected: list[str]) -> None:
    assert [one.name for one in selected_ports(PORTS, words)] == selected


def test_a_port_that_is_asked_for_by_name_must_be_active() -> None:
    ports = [port("mlx5_0"), port("mlx5_1", usable=False)]

    assert rdma_finding(ports, "mlx5_0,mlx5_1", wanted=False).word == "fail"
    assert rdma_finding(ports, None, wanted=False).word == "pass"
    assert "mlx5_1:1 down" in rdma_finding(ports, None, wanted=False).detail


def test_a_name_that_no_port_has_fails_the_node() -> None:
    assert "mlx5_7" in rdma_finding(PORTS, "=mlx5_0,mlx5_7", wanted=False).detail


def test_a_node_without_ports_fails_only_where_they_are_wanted() -> None:
    assert [rdma_finding([], None, wanted=wanted).word for wanted in (False, True)] == ["skip", "fail"]


def test_ports_come_from_sysfs_with_state_and_verbs_device(tmp_path: Path) -> None:
    rdma_port(tmp_path, "mlx5_0", verbs="uverbs5")
    rdma_port(tmp_path, "mlx5_1", state="1: DOWN", verbs="uverbs1")
    rdma_port(tmp_path, "mlx5_2", verbs=None)

    finding = rdma_finding(read_network(tmp_path).ports, "mlx5", wanted=False)

    assert finding.word == "fail"
    assert "mlx5_1:1, mlx5_2:1 of 3 ports" in finding.detail
