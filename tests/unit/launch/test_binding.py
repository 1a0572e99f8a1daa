"""Which CPUs ranks get on machines of every shape, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.host.amd import find_amd
from primus_hydra.host.cpu_list import parse_cpu_list
from primus_hydra.host.gpu import visible
from primus_hydra.host.nvidia import find_nvidia
from primus_hydra.host.topology import read_topology
from primus_hydra.launch.binding import Binding, bind_ranks
from tests.unit.host.machines import Tools, h100_node, mi300x_node, processors

TWO_SOCKETS = [0, 0, 0, 0, 1, 1, 1, 1]
EVERY_CPU = frozenset(range(1024))


def bound(
    root: Path,
    ranks: int,
    *,
    on_gpus: bool = True,
    env: dict[str, str] | None = None,
    affinity: frozenset[int] = EVERY_CPU,
) -> Binding:
    gpus = visible((*find_nvidia(root, Tools()).gpus, *find_amd(root).gpus), env or {})
    topology = read_topology(gpus, root=root, affinity=affinity)
    return bind_ranks("auto", topology, ranks=ranks, on_gpus=on_gpus, joined=False)


def cpus(binding: Binding) -> list[frozenset[int]]:
    return [parse_cpu_list(text) for text in binding.cpus]


def test_eight_mi300x_on_two_sockets_share_the_cores_of_their_socket(tmp_path):
    processors(tmp_path, nodes=2, cores=96)
    binding = bound(mi300x_node(tmp_path, TWO_SOCKETS), 8)
    assert binding.cpus[0] == "0-23,192-215"
    assert binding.cpus[3] == "72-95,264-287"
    assert binding.cpus[4] == "96-119,288-311"
    assert binding.cores == 24
    assert binding.reason == "bound to the cores near their GPUs: 4 on NUMA node 0, 4 on NUMA node 1"
    assert sorted(cpu for share in cpus(binding) for cpu in share) == list(range(384))


def test_with_four_numa_nodes_a_socket_each_mi300x_has_a_node_of_its_own(tmp_path):
    processors(tmp_path, nodes=8, cores=12)
    binding = bound(mi300x_node(tmp_path, [3, 2, 1, 0, 7, 6, 5, 4]), 8)
    assert binding.cpus[:2] == ("36-47,132-143", "24-35,120-131")
    assert binding.cores == 12


def test_gpus_that_meet_on_one_of_many_nodes_share_it(tmp_path):
    processors(tmp_path, nodes=8, cores=12)
    binding = bound(mi300x_node(tmp_path, [1, 1, 3, 3, 5, 5, 7, 7]), 8)
    assert binding.cpus[:3] == ("12-17,108-113", "18-23,114-119", "36-41,132-137")


def test_eight_h100_on_two_sockets_share_the_cores_of_their_socket(tmp_path):
    processors(tmp_path, nodes=2, cores=56)
    binding = bound(h100_node(tmp_path, TWO_SOCKETS), 8)
    assert binding.cpus[0] == "0-13,112-125"
    assert binding.cpus[7] == "98-111,210-223"
    assert binding.cores == 14


def test_fewer_ranks_than_gpus_share_the_cores_among_themselves(tmp_path):
    processors(tmp_path, nodes=2, cores=8)
    root = h100_node(tmp_path, TWO_SOCKETS)
    assert bound(root, 2).cpus == ("0-3,16-19", "4-7,20-23")
    assert bound(root, 1).cpus == ("0-7,16-23",)
    assert bound(root, 5).cpus == ("0-1,16-17", "2-3,18-19", "4-5,20-21", "6-7,22-23", "8-15,24-31")
    assert bound(root, 5).cores == 2  # of the ranks with the fewest


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"ROCR_VISIBLE_DEVICES": "4,5"}, ("8-11,24-27", "12-15,28-31")),
        ({"HIP_VISIBLE_DEVICES": "7,0"}, ("8-15,24-31", "0-7,16-23")),
        ({"CUDA_VISIBLE_DEVICES": "0,7"}, ("0-7,16-23", "8-15,24-31")),
    ],
)
def test_ranks_follow_the_visible_gpus(tmp_path, env, expected):
    processors(tmp_path, nodes=2, cores=8)
    assert bound(mi300x_node(tmp_path, TWO_SOCKETS), 2, env=env).cpus == expected


def test_cores_that_do_not_divide_go_round_as_evenly_as_they_can(tmp_path):
    processors(tmp_path, nodes=2, cores=7)
    binding = bound(mi300x_node(tmp_path, TWO_SOCKETS), 8)
    assert sorted(len(share) // 2 for share in cpus(binding)) == [1, 1, 2, 2, 2, 2, 2, 2]
    assert binding.cores == 1


def test_a_restricted_cpuset_is_shared_and_never_left(tmp_path):
    processors(tmp_path, nodes=2, cores=8)
    allowed = frozenset({0, 1, 2, 3, 16, 17, 8, 9, 10, 11})  # in the second node one thread of each core
    binding = bound(mi300x_node(tmp_path, TWO_SOCKETS), 8, affinity=allowed)
    assert binding.cpus == ("0,16", "1,17", "2", "3", "8", "9", "10", "11")


def test_more_ranks_than_cores_of_a_node_have_them_all_in_common(tmp_path):
    processors(tmp_path, nodes=2, cores=8)
    binding = bound(h100_node(tmp_path, TWO_SOCKETS), 8, affinity=frozenset({0, 1, 8, 9, 10, 11}))
    assert binding.cpus == ("0-1",) * 4 + ("8", "9", "10", "11")
    assert binding.cores == 1


def test_a_gpu_that_nobody_places_goes_where_most_cores_are_left(tmp_path):
    processors(tmp_path, nodes=2, cores=8)
    assert bound(h100_node(tmp_path, [0, -1, 0]), 3).cpus == ("0-3,16-19", "8-15,24-31", "4-7,20-23")


@pytest.mark.parametrize("machine", [mi300x_node, h100_node])
def test_gpus_that_nothing_places_bind_no_rank(tmp_path, machine):
    processors(tmp_path, nodes=2, cores=8)
    binding = bound(machine(tmp_path, [-1] * 8), 8)
    assert binding == Binding(
        reason="not bound: nothing tells the NUMA node of the GPUs, and a guess may be the far one"
    )


def test_one_numa_node_binds_nothing(tmp_path):
    processors(tmp_path, nodes=1, cores=8)
    root = h100_node(tmp_path, [0] * 8)
    for on_gpus in (True, False):
        binding = bound(root, 4, on_gpus=on_gpus)
        assert binding.cpus == ()
        assert "one NUMA node" in binding.reason


def test_a_cpuset_inside_one_numa_node_binds_nothing(tmp_path):
    processors(tmp_path, nodes=2, cores=8)
    binding = bound(mi300x_node(tmp_path, TWO_SOCKETS), 8, affinity=frozenset(range(8, 16)))
    assert binding.cpus == ()
    assert "one NUMA node" in binding.reason


def test_gpus_that_are_elsewhere_bind_nothing(tmp_path):
    binding = bound(processors(tmp_path, nodes=2, cores=8), 8)
    assert binding.cpus == ()
    assert "8 GPUs are wanted, and 0" in binding.reason


@pytest.mark.parametrize(
    ("nodes", "ranks", "expected"),
    [
        (2, 2, ("0-3,8-11", "4-7,12-15")),
        (2, 4, ("0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15")),
        (4, 2, ("0-7,16-23", "8-15,24-31")),  # two whole nodes each
        (2, 3, ("0-1,8-9", "2-4,10-12", "5-7,13-15")),  # the one in the middle has a core of the first node
    ],
)
def test_without_gpus_ranks_cut_the_cores_of_all_nodes_in_equal_parts(tmp_path, nodes, ranks, expected):
    binding = bound(processors(tmp_path, nodes=nodes, cores=4), ranks, on_gpus=False)
    assert binding.cpus == expected
    assert binding.cores == min(len(share) // 2 for share in cpus(binding))


@pytest.mark.parametrize(("ranks", "why"), [(1, "one rank"), (9, "9 ranks share 8 cores")])
def test_without_gpus_one_rank_or_too_many_are_not_bound(tmp_path, ranks, why):
    binding = bound(processors(tmp_path, nodes=2, cores=4), ranks, on_gpus=False)
    assert binding.cpus == ()
    assert why in binding.reason
