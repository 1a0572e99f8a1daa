"""The place of each GPU and core is read from sysfs, for what this process may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.host.amd import find_amd
from primus_hydra.host.gpu import visible
from primus_hydra.host.nvidia import find_nvidia
from primus_hydra.host.topology import NumaNode, Topology, read_topology
from tests.unit.host.machines import (
    NVIDIA_SMI,
    Tools,
    h100_node,
    kfd_properties,
    mi300x_node,
    nvidia_node,
    pci_device,
    processors,
    write,
)

TWO_SOCKETS = [0, 0, 0, 0, 1, 1, 1, 1]
ALL = frozenset(range(64))


def topology(root: Path, env: dict[str, str] | None = None, affinity: frozenset[int] = ALL) -> Topology:
    """Read the topology of a fake machine with two sockets of 16 cores, unless it has processors already."""
    if not (root / "sys/devices/system/node").exists():
        processors(root, nodes=2, cores=16)
    gpus = visible((*find_nvidia(root, Tools()).gpus, *find_amd(root).gpus), env or {})
    return read_topology(gpus, root=root, affinity=affinity)


def test_cores_are_grouped_with_their_hyper_threads_below_their_numa_node(tmp_path):
    read = read_topology(root=processors(tmp_path, nodes=2, cores=2), affinity=frozenset(range(8)))
    assert read.nodes == (
        NumaNode(number=0, cores=(frozenset({0, 4}), frozenset({1, 5}))),
        NumaNode(number=1, cores=(frozenset({2, 6}), frozenset({3, 7}))),
    )


def test_only_what_the_affinity_leaves_is_there(tmp_path):
    read = read_topology(root=processors(tmp_path, nodes=2, cores=2), affinity=frozenset({0, 1, 5}))
    assert read.nodes == (NumaNode(number=0, cores=(frozenset({0}), frozenset({1, 5}))),)


def test_a_kernel_without_numa_is_one_node(tmp_path):
    assert read_topology(root=tmp_path, affinity=frozenset({3})).nodes == (NumaNode(number=0, cores=(frozenset({3}),)),)


def test_this_very_machine_has_a_node_with_every_cpu_of_this_process_once():
    cpus = [cpu for node in read_topology().nodes for core in node.cores for cpu in core]
    assert len(cpus) == len(set(cpus)) > 0


@pytest.mark.parametrize("machine", [mi300x_node, h100_node])
def test_each_gpu_is_on_the_numa_node_of_its_pci_device(tmp_path, machine):
    assert topology(machine(tmp_path, TWO_SOCKETS)).gpus == tuple(TWO_SOCKETS)


@pytest.mark.parametrize(
    ("env", "gpus"),
    [
        ({"ROCR_VISIBLE_DEVICES": "3,4"}, (0, 1)),
        ({"HIP_VISIBLE_DEVICES": "7,0"}, (1, 0)),
        ({"ROCR_VISIBLE_DEVICES": "4,5,0", "HIP_VISIBLE_DEVICES": "2,1"}, (0, 1)),
        ({"ROCR_VISIBLE_DEVICES": "GPU-000000000000A0B5,GPU-000000000000a0b1"}, (1, 0)),
        ({"ROCR_VISIBLE_DEVICES": "GPU-ffffffffffffffff"}, (None,)),
    ],
)
def test_masks_of_amd_choose_and_order_the_places(tmp_path, env, gpus):
    assert topology(mi300x_node(tmp_path, TWO_SOCKETS), env).gpus == gpus


@pytest.mark.parametrize(
    ("value", "gpus"),
    [
        ("7,0", (1, 0)),
        ("GPU-00000006-1111-2222-3333-444444444444", (1,)),
        ("GPU-00000006,GPU-00000001", (1, 0)),
        ("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", (None,)),
    ],
)
def test_masks_of_nvidia_choose_and_order_the_places(tmp_path, value, gpus):
    assert topology(h100_node(tmp_path, TWO_SOCKETS), {"CUDA_VISIBLE_DEVICES": value}).gpus == gpus


def test_partitions_of_one_amd_gpu_are_where_the_gpu_is(tmp_path):
    nodes = {
        f"sys/class/kfd/kfd/topology/nodes/{2 + place}/properties": kfd_properties(0x74A1, 90402, location=location)
        for place, location in enumerate((0x8500, 0x8501, 0x1000_8500))  # by function (older kernels), by the top bits
    }
    pci_device(write(tmp_path, {"dev/kfd": "", **nodes}), "0000:85:00.0", node=1)
    assert topology(tmp_path).gpus == (1, 1, 1)


def test_gpus_that_only_nvidia_smi_names_are_those_that_the_driver_has_bound(tmp_path):
    processors(tmp_path, nodes=2, cores=2)
    for address, pci_class in (
        ("0000:1b:00.0", "0x030200"),
        ("0000:9d:00.0", "0x030200"),
        ("0000:d0:00.0", "0x068000"),
    ):
        pci_device(tmp_path, address, node=int(address.startswith("0000:9d")))
        write(tmp_path, {f"sys/bus/pci/drivers/nvidia/{address}/class": pci_class})
    both, one = (
        find_nvidia(tmp_path, Tools({NVIDIA_SMI: answer})).gpus for answer in ("NVIDIA H100\n" * 2, "NVIDIA H100\n")
    )
    assert read_topology(both, root=tmp_path, affinity=ALL).gpus == (0, 1)
    assert read_topology(one, root=tmp_path, affinity=ALL).gpus == (None,)  # which of the two is not known


def test_a_gpu_whose_firmware_is_silent_is_found_by_its_local_cpus(tmp_path):
    root = h100_node(tmp_path, [-1, -1])
    pci_device(root, "0000:43:00.0", node=-1, cpus="16-31,48-63")
    assert topology(root).gpus == (None, 1)


def test_a_gpu_without_a_pci_device_here_is_nowhere(tmp_path):
    assert topology(nvidia_node(tmp_path, ["NVIDIA H100 80GB HBM3"])).gpus == (None,)


def test_a_gpu_whose_node_may_not_be_used_counts_for_the_nearest_that_may(tmp_path):
    far = ["10 12 32 32", "12 10 32 32", "32 32 10 12", "32 32 12 10"]
    processors(tmp_path, nodes=4, cores=2, distances=far)
    root = mi300x_node(tmp_path, [0, 1, 2, 3])
    assert topology(root, affinity=frozenset({2, 6})).gpus == (1, 1, 3, 3)


def test_without_distances_such_a_gpu_is_nowhere(tmp_path):
    assert topology(mi300x_node(tmp_path, [0, 1]), affinity=frozenset({0, 1})).gpus == (0, None)
