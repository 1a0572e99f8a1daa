"""What a preflight is asked for: tests, sizes, limits in time; the same object on every node."""

from __future__ import annotations

from dataclasses import dataclass

from primus_hydra.config.schema import JobConfig
from primus_hydra.preflight.names import SIZES_MIB, SIZES_MIB_CPU

_GEMM_GPU = {"smoke": 2048, "quick": 8192, "full": 8192}
_GEMM_CPU = {"smoke": 256, "quick": 512, "full": 1024}
_COPY_MIB = {False: 1024, True: 64}
_ALLOCATE_MIB = {False: 256, True: 64}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """`devices` of each node are tested; sizes of collectives in MiB; limits in seconds."""

    suite: str
    tests: tuple[str, ...]
    devices: int
    sizes_mib: tuple[float, ...]
    join_s: float
    limit_s: float
    start_s: float

    def wants(self, *tests: str) -> bool:
        """Whether any of these tests is to be made."""
        return any(test in self.tests for test in tests)

    @property
    def life_s(self) -> float:
        """How long a node may be at it in all: every step may take its limit, and a search takes several."""
        return self.join_s + self.start_s + 20 * (self.limit_s + 30)


def device_count(job: JobConfig) -> int:
    """Return how many devices of a node are tested: its GPUs, or on a CPU two ranks where there is one node only."""
    if job.launch.ranks_per_node is not None:
        return job.launch.ranks_per_node
    if job.platform.is_cpu:
        return 2 if job.launch.nodes == 1 else 1
    return job.platform.gpus_per_node


def default_sizes(job: JobConfig, suite: str) -> tuple[float, ...]:
    """Return the buffers of the collectives of a suite."""
    sizes = SIZES_MIB_CPU if job.platform.is_cpu else SIZES_MIB
    return sizes[suite] or sizes["smoke"]


def gemm_size(job: JobConfig, suite: str) -> int:
    """Return the rows and columns of the product; with `info` and chosen tests, those of `quick`."""
    sizes = _GEMM_CPU if job.platform.is_cpu else _GEMM_GPU
    return sizes.get(suite, sizes["quick"])


def copy_mib(job: JobConfig) -> int:
    """Return the size of the copy: large enough not to stay in a cache."""
    return _COPY_MIB[job.platform.is_cpu]


def allocate_mib(job: JobConfig) -> int:
    """Return the size of the first allocation."""
    return _ALLOCATE_MIB[job.platform.is_cpu]
