"""The tests of a node that need no torch: each a function from what was read to a finding."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from primus_hydra.config.schema import PlatformConfig
from primus_hydra.host.detect import Detection
from primus_hydra.launch.host_check import host_problems
from primus_hydra.preflight.finding import Finding, at_least, at_most
from primus_hydra.preflight.tools.reading import Reading
from primus_hydra.preflight.tools.seen import SeenGpu

_GIB = 2**30
_WRITTEN_MIB = 32


def gpus_finding(platform: PlatformConfig, detection: Detection, wanted: int) -> Finding:
    """Judge whether `wanted` GPUs of the platform's kind are here."""
    if platform.is_cpu:
        return Finding(test="gpus", word="skip", detail="the platform has none")
    problems = host_problems(platform, detection, wanted)
    if problems:
        return Finding(test="gpus", word="fail", detail=problems[0].what, value=detection.gpu_count, limit=wanted)
    return Finding(test="gpus", word="pass", detail=detection.seen, value=detection.gpu_count, limit=wanted)


def tool_finding(platform: PlatformConfig, reading: Reading) -> Finding:
    """Judge the driver's tool: that it answers, how fast, and that it knows of no uncorrected memory error."""
    if platform.is_cpu:
        return Finding(test="gpu_tool", word="skip", detail="the platform has no GPU")
    if reading.report is None:
        detail = "no driver's tool answered: it is not installed, fails, or hangs"
        return Finding(test="gpu_tool", word="unknown", detail=detail, weak=True)
    bad = [f"GPU {gpu.index}: {gpu.uncorrected}" for gpu in reading.report.gpus if gpu.uncorrected]
    if bad:
        return Finding(test="gpu_tool", word="fail", detail=f"memory errors that were not corrected: {', '.join(bad)}")
    return at_most("gpu_tool", reading.slowest_s, platform.limits.tool_s, "s", f"{reading.report.tool} answered")


def processes_finding(
    platform: PlatformConfig, reading: Reading, detection: Detection, own: Collection[int]
) -> Finding:
    """Judge whether the GPUs that this job may use are free; `own` are the numbers of our own processes."""
    if platform.is_cpu:
        return Finding(test="gpu_processes", word="skip", detail="the platform has no GPU")
    if reading.report is None:
        return Finding(test="gpu_processes", word="unknown", detail="no driver's tool answered", weak=True)
    ours = _visible(reading.report.gpus, detection)
    foreign = {one.pid: f"{one.name or 'a process'} ({one.pid})" for gpu in ours for one in gpu.processes}
    others = [words for pid, words in sorted(foreign.items()) if pid not in own]
    if others:
        detail = f"processes that are not ours: {', '.join(others[:5])}{' ...' if len(others) > 5 else ''}"
        return Finding(test="gpu_processes", word="fail", detail=detail, value=len(others), limit=0)
    busy = max(((gpu.used_mib or 0.0) / 1024, gpu.index) for gpu in ours) if ours else (0.0, 0)
    limit = platform.limits.memory_busy_gib
    return at_most("gpu_processes", busy[0], limit, "GiB", f"no other process; memory in use on GPU {busy[1]}")


def _visible(gpus: Collection[SeenGpu], detection: Detection) -> list[SeenGpu]:
    """Return the GPUs that are ours, by address or UUID; all where a tool tells neither."""
    pcis = {gpu.pci.lower() for gpu in detection.gpus if gpu.pci}
    uuids = {gpu.uuid for gpu in detection.gpus if gpu.uuid}
    known = [gpu for gpu in gpus if (gpu.pci and gpu.pci in pcis) or (gpu.uuid and gpu.uuid in uuids)]
    return known or list(gpus)


def memlock_finding(platform: PlatformConfig, memlock: float | None, *, rdma: bool) -> Finding:
    """Judge how much memory may be locked: RDMA pins its buffers, and fails in odd ways where it may not."""
    if memlock is None:
        return Finding(test="memlock", word="pass", detail="no limit")
    if not rdma:
        return Finding(test="memlock", word="skip", detail=f"{memlock:g} GiB; no RDMA port uses it")
    return at_least("memlock", memlock, platform.limits.memlock_gib, "GiB")


def shm_finding(platform: PlatformConfig, size_gib: float | None) -> Finding:
    """Judge /dev/shm, in which data workers and the ranks of a node pass data to each other."""
    if size_gib is None:
        return Finding(test="shm", word="fail", detail="there is no /dev/shm")
    return at_least("shm", size_gib, platform.limits.shm_gib, "GiB")


def disk_finding(platform: PlatformConfig, folder: Path, *, mib: int = _WRITTEN_MIB) -> Finding:
    """Judge the place of the runs: room, and a file that is written, brought to the disk, read back and removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free / _GIB
        if free < platform.limits.disk_free_gib:
            return at_least("disk", free, platform.limits.disk_free_gib, "GiB", f"free in {folder}")
        rate = _write_and_read(folder / f".preflight-{os.uname().nodename}-{os.getpid()}", mib)
    except OSError as error:
        return Finding(test="disk", word="fail", detail=f"{folder}: {error.strerror or error}")
    return at_least("disk", rate, platform.limits.disk_mb_s, "MB/s", f"{free:.0f} GiB free in {folder}, written at")


def _write_and_read(file: Path, mib: int) -> float:
    """Return MB/s of writing; raises OSError, also where other bytes come back."""
    content = os.urandom(1 << 20)
    try:
        began = time.perf_counter()
        with file.open("wb") as out:
            for _ in range(mib):
                out.write(content)
            out.flush()
            os.fsync(out.fileno())
        taken = time.perf_counter() - began
        with file.open("rb") as back:
            if any(back.read(1 << 20) != content for _ in range(mib)):
                raise OSError("what was read is not what was written")
    finally:
        file.unlink(missing_ok=True)
    return mib * 2**20 / 1e6 / taken
