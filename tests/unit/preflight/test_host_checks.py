"""The tests of a host, from what was read to a verdict."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from primus_hydra.config.schema import LimitsConfig, PlatformConfig
from primus_hydra.host.cores import Cores
from primus_hydra.host.detect import Detection
from primus_hydra.host.gpu import Gpu
from primus_hydra.preflight.host_checks import (
    disk_finding,
    gpus_finding,
    memlock_finding,
    processes_finding,
    shm_finding,
    tool_finding,
)
from primus_hydra.preflight.limits import gemm_limit, network_limit
from primus_hydra.preflight.node_stage import examine_node
from primus_hydra.preflight.tools.reading import Reading
from primus_hydra.preflight.tools.seen import GpuProcess, SeenGpu, ToolReport
from tests.support import make_job
from tests.unit.host.machines import Tools, write

GPU = PlatformConfig(
    name="mi300x",
    vendor="amd",
    product_names=["*MI300X*"],
    gpus_per_node=2,
    peak_tflops={"bfloat16": 1000.0},
    link_bandwidth_gb_s=448,
    nic_bandwidth_gb_s=50,
)
CPU = PlatformConfig(name="cpu", limits=LimitsConfig(memlock_gib=None, shm_gib=None))


def detection(count: int) -> Detection:
    found = tuple(
        Gpu(vendor="amd", names=("AMD Instinct MI300X",), pci=f"0000:0{place}:00.0") for place in range(count)
    )
    return Detection(platform="mi300x", gpus=found, cores=Cores(logical=8, physical=8))


def reading(*gpus: SeenGpu, slowest_s: float = 0.1) -> Reading:
    return Reading(report=ToolReport(tool="amd-smi", driver="6.10.5", gpus=gpus), slowest_s=slowest_s)


def test_a_node_with_fewer_gpus_than_the_job_takes_fails() -> None:
    assert [gpus_finding(GPU, detection(count), 2).word for count in (2, 1, 0)] == ["pass", "fail", "fail"]
    assert gpus_finding(CPU, detection(0), 2).word == "skip"


def test_a_process_of_somebody_else_fails_the_node_and_is_named() -> None:
    busy = SeenGpu(index=0, pci="0000:00:00.0", processes=(GpuProcess(pid=7, name="python"), GpuProcess(pid=8)))
    finding = processes_finding(GPU, reading(busy), detection(2), own={8})

    assert finding.word == "fail"
    assert "python (7)" in finding.detail
    assert "8" not in finding.detail.replace("(7)", "")
    assert processes_finding(GPU, reading(busy), detection(2), own={7, 8}).word == "pass"


def test_a_process_on_a_gpu_that_is_not_ours_does_not_matter() -> None:
    ours = SeenGpu(index=0, pci="0000:00:00.0")
    other = SeenGpu(index=5, pci="0000:05:00.0", processes=(GpuProcess(pid=7),))

    assert processes_finding(GPU, reading(ours, other), detection(2), own=set()).word == "pass"


def test_memory_that_nobody_owns_up_to_fails_the_node() -> None:
    leaked = SeenGpu(index=1, pci="0000:01:00.0", used_mib=5000.0)

    assert processes_finding(GPU, reading(leaked), detection(2), own=set()).word == "fail"


def test_a_tool_that_is_slow_or_knows_of_memory_errors_fails_the_node() -> None:
    assert tool_finding(GPU, reading(SeenGpu(index=0), slowest_s=9.0)).word == "fail"
    assert tool_finding(GPU, reading(SeenGpu(index=0, uncorrected=2))).word == "fail"
    assert tool_finding(GPU, reading(SeenGpu(index=0, uncorrected=0))).word == "pass"
    assert tool_finding(GPU, Reading(report=None)).word == "unknown"


@pytest.mark.parametrize(
    ("memlock", "rdma", "word"), [(None, True, "pass"), (0.06, True, "fail"), (0.06, False, "skip")]
)
def test_locked_memory_matters_where_rdma_is_used(memlock: float | None, rdma: bool, word: str) -> None:
    assert memlock_finding(GPU, memlock, rdma=rdma).word == word


def test_shared_memory_is_held_against_the_platforms_limit() -> None:
    assert [shm_finding(platform, 0.06).word for platform in (GPU, CPU)] == ["fail", "pass"]
    assert shm_finding(CPU, None).word == "fail"


def test_a_disk_is_written_and_left_as_it_was(tmp_path: Path) -> None:
    finding = disk_finding(CPU, tmp_path, mib=1)

    assert (finding.word, finding.unit) == ("pass", "MB/s")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_fails_the_node(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")

    assert disk_finding(CPU, tmp_path / "runs", mib=1).word == "fail"


def test_a_full_disk_fails_the_node(tmp_path: Path) -> None:
    platform = PlatformConfig(name="cpu", limits=LimitsConfig(disk_free_gib=1e9))

    assert disk_finding(platform, tmp_path, mib=1).word == "fail"


def test_limits_follow_from_peaks_where_the_platform_states_none() -> None:
    assert gemm_limit(GPU) == pytest.approx(450.0)
    assert network_limit(GPU, "p2p") == pytest.approx(20.0)
    assert network_limit(GPU, "all_reduce") == pytest.approx(40.0)
    assert gemm_limit(CPU) is None


def test_a_check_that_hangs_is_a_failure_in_bounded_time(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"proc/uptime": "100 1\n"})
    (root / "dev").mkdir()
    (root / "proc/uptime").unlink()
    os.mkfifo(root / "proc/uptime")  # whoever opens it waits for a writer
    (root / "dev/kmsg").write_text("")
    began = time.monotonic()
    seen = examine_node(
        make_job(), ["kernel_log", "disk"], devices=1, folder=tmp_path / "runs", limit_s=3.0, root=root, run=Tools()
    )

    assert time.monotonic() - began < 3.0
    assert {one["test"]: one["word"] for one in seen["findings"]} == {"kernel_log": "fail", "disk": "pass"}
