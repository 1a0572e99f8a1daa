"""The tests of a preflight by name, and which of them a suite runs. A wrong name is refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from primus_hydra.config.suggest import nearest
from primus_hydra.errors import Problem

HOST: Mapping[str, str] = {
    "gpus": "as many GPUs of the platform's kind as it says",
    "gpu_tool": "the driver's tool answers in time and reports no uncorrected memory error",
    "gpu_processes": "no process of somebody else on the GPUs, and their memory is free",
    "memlock": "enough memory may be locked for RDMA",
    "shm": "/dev/shm is large enough",
    "disk": "the folder of the runs has room, and what is written there comes back",
    "kernel_log": "no error of hardware or driver in the kernel's log of the last minutes",
    "rdma": "the RDMA ports that are to be used are active and can be opened",
}
DEVICE: Mapping[str, str] = {
    "allocate": "a GPU's memory holds a pattern",
    "gemm": "a matrix product is right, and fast enough",
    "copy": "a copy in the GPU's memory is right, and fast enough",
}
LOCAL: Mapping[str, str] = {
    "local_all_reduce": "all_reduce over the GPUs of the node",
    "local_all_to_all": "all_to_all over the GPUs of the node",
}
NODES: Mapping[str, str] = {
    "clock": "the node's clock agrees with the first node's",
    "versions": "drivers, libraries and hardware are the same on all nodes",
    "p2p": "each node exchanges data with two others, pair by pair",
    "ring": "all nodes pass data round a ring",
    "all_reduce": "all_reduce over all nodes; the slow node is searched for if it fails",
    "all_to_all": "all_to_all over all nodes; the slow node is searched for if it fails",
}
TESTS: Mapping[str, str] = {**HOST, **DEVICE, **LOCAL, **NODES}

SUITES: Mapping[str, tuple[str, ...]] = {
    "info": (),
    "smoke": (*HOST, "clock", "versions", "allocate", "gemm"),
    "quick": (*HOST, "clock", "versions", *DEVICE, "local_all_reduce", "p2p", "all_reduce"),
    "full": tuple(TESTS),
}
SIZES_MIB: Mapping[str, tuple[float, ...]] = {
    "info": (),
    "smoke": (16.0,),
    "quick": (64.0, 1024.0),
    "full": (2.0, 16.0, 64.0, 256.0, 1024.0),
}
"""Buffers of the collectives on GPUs."""
SIZES_MIB_CPU: Mapping[str, tuple[float, ...]] = {
    "info": (),
    "smoke": (1.0,),
    "quick": (1.0,),
    "full": (0.25, 4.0),
}


def chosen_tests(suite: str, tests: Sequence[str], skip: Sequence[str]) -> tuple[tuple[str, ...], list[Problem]]:
    """Return the tests to run in their order, and what is wrong with the names; `tests` win over the suite's."""
    problems = [
        *(problem for name in tests if (problem := _unknown("task.tests", name))),
        *(problem for name in skip if (problem := _unknown("task.skip", name))),
    ]
    wanted = set(tests or SUITES[suite]) - set(skip)
    return tuple(name for name in TESTS if name in wanted), problems


def _unknown(key: str, name: str) -> Problem | None:
    if name in TESTS:
        return None
    near = nearest(name, TESTS)
    hint = f"did you mean {near[0]}? " if near else ""
    return Problem(key=key, what=f"there is no test {name!r}", hint=f"{hint}tests: {', '.join(TESTS)}")
