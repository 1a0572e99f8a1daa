"""The cores of a process are those it may use, not those of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus_hydra.host.cores import Cores, read_cores, usable_cores
from tests.unit.host.machines import write

FOUR = frozenset(range(4))


def hyper_threads(root: Path, name: str = "core_cpus_list") -> Path:
    """Two cores with two threads each: 0 and 2 are siblings, as the kernel numbers them."""
    return write(
        root, {f"sys/devices/system/cpu/cpu{cpu}/topology/{name}": f"{cpu % 2},{cpu % 2 + 2}\n" for cpu in FOUR}
    )


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_threads_of_one_core_count_once(tmp_path, name):
    assert read_cores(hyper_threads(tmp_path, name), FOUR) == Cores(logical=4, physical=2)


def test_affinity_to_one_thread_of_each_core_keeps_both_cores(tmp_path):
    assert read_cores(hyper_threads(tmp_path), frozenset({0, 3})).physical == 2
    assert read_cores(hyper_threads(tmp_path), frozenset({0, 2})).physical == 1


def test_without_a_topology_every_cpu_is_a_core(tmp_path):
    assert read_cores(tmp_path, FOUR).physical == 4


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        # the limit stands at the job, the process in a step below it
        (
            {
                "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
                "sys/fs/cgroup/slurm/job_7/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "max 100000\n",
            },
            3.0,
        ),
        # the path is the host's, the mount the container's own
        ({"proc/self/cgroup": "0::/../kubepods/pod1\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1.0),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({}, None),
    ],
)
def test_the_smallest_limit_on_the_way_up_holds(tmp_path, files, quota):
    assert read_cores(write(tmp_path, files), FOUR).quota == quota


@pytest.mark.parametrize(("physical", "quota", "usable"), [(8, None, 8), (8, 2.5, 2), (8, 0.5, 1), (2, 16.0, 2)])
def test_usable_cores_are_whole_and_at_least_one(physical, quota, usable):
    assert Cores(logical=16, physical=physical, quota=quota).usable == usable


def test_this_process_has_a_core_and_no_more_than_its_affinity():
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
