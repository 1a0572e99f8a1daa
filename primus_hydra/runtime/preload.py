"""What the fork server imports before it forks ranks: `primus_hydra.runtime.preloading` calls `preload` at its import.

A rank that is forked from a prepared server starts without paying for the imports again. The preparation never raises:
Python would swallow an ImportError of a preloaded module and turn any other into an unexplained end of file. It records
what it did instead, and says itself whether ranks may be forked; where they may not, the agent starts plain processes.

A server may have one thread only, and may not have touched a device: a fork of such a process could neither.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from primus_hydra.config.build import load_job
from primus_hydra.config.instantiate import load_target
from primus_hydra.config.schema import JobConfig
from primus_hydra.patching import PatchContext, PatchRecord, load_patches, run_patches
from primus_hydra.run.atomic import write_json
from primus_hydra.runtime.contracts import BackendAdapter
from primus_hydra.runtime.preload_report import SPEC_VARIABLE, report_path
from primus_hydra.runtime.signals import outlive_stops
from primus_hydra.runtime.spec import AttemptSpec
from primus_hydra.runtime.tether import PARENT_VARIABLE, die_with_parent

_OF_EVERY_RANK = ("primus_hydra.runtime.rank", "primus_hydra.runtime.flow", "primus_hydra.runtime.trackers.opening")
_OF_EVERY_OPTIMIZER = "torch._dynamo"
"""torch imports it when the first optimizer is built, for a second or two in each rank."""


@dataclass(frozen=True, kw_only=True)
class Preloaded:
    """What a server has done for its ranks, or why it may not fork (`unfit`).

    `records` are of the patches of phase `before_import`, `adapter` has read the job and imported its backend.
    """

    spec: str
    seconds: float
    records: tuple[PatchRecord, ...] = ()
    adapter: BackendAdapter | None = None
    unfit: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what a report says."""
        records = [record.to_json() for record in self.records]
        return {"spec": self.spec, "seconds": self.seconds, "records": records, "unfit": self.unfit}


_state: Preloaded | None = None


def preloaded(spec_path: Path) -> Preloaded | None:
    """Return what the server that this rank was forked from has done; None in a process that was started alone."""
    return _state if _state is not None and _state.spec == str(spec_path) else None


def preload() -> None:
    """Prepare this process as a fork server; never raises, and leaves its report beside the spec."""
    global _state
    die_with_parent()
    outlive_stops()
    # Ranks are children of this process, and check that it still is their parent.
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    path, began = os.environ.get(SPEC_VARIABLE, ""), time.monotonic()
    records: tuple[PatchRecord, ...] = ()
    adapter: BackendAdapter | None = None
    try:
        spec = AttemptSpec.read(Path(path))
        spec.stages("server").reached("started")
        with _all_for_good():
            adapter, records = _prepare(spec)
        unfit = _unfit()
        spec.stages("server").reached("ready")
    except BaseException as error:  # the ranks meet the same error in their own logs
        unfit = "".join(traceback.format_exception_only(error)).strip()
        traceback.print_exc()
    _state = Preloaded(spec=path, seconds=time.monotonic() - began, records=records, adapter=adapter, unfit=unfit)
    if path:
        write_json(report_path(Path(path)), _state.to_json())


def _prepare(spec: AttemptSpec) -> tuple[BackendAdapter, tuple[PatchRecord, ...]]:
    """Do what every rank would do first, in the same order as `runtime.flow`."""
    os.environ.update(spec.environment)
    job = load_job(spec.paths.config)
    adapter = load_target(job.backend._target_, BackendAdapter, key="backend._target_")(job)  # type: ignore[type-abstract]
    adapter.setup_backend_path()
    load_patches(job.backend.name)
    with _devices_by_word(job):
        records = run_patches("before_import", before_import_context(spec, job, adapter.detect_backend_version()))
        adapter.prepare_backend()
        if job.backend.trainer is None:
            adapter.load_trainer_class(job.module)
        for module in _OF_EVERY_RANK:
            importlib.import_module(module)
        if "torch" in sys.modules:
            importlib.import_module(_OF_EVERY_OPTIMIZER)
    return adapter, tuple(records)


@contextlib.contextmanager
def _all_for_good() -> Iterator[None]:
    """Keep the collector off, and let it forget all that is here afterwards.

    What is imported stays: to look through it again and again costs a tenth of the imports' time, and would make each
    rank copy its pages.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _devices_by_word(job: JobConfig) -> Iterator[None]:
    """Answer what imports ask of the devices from the platform: a question to the driver would spoil every fork.

    Ranks ask the driver again; only what a module decided while it was imported rests on the platform's word.
    """
    if importlib.util.find_spec("torch") is None:  # a backend that does without
        yield
        return
    cuda = importlib.import_module("torch").cuda
    count = 0 if job.platform.is_cpu else (job.launch.ranks_per_node or job.platform.gpus_per_node)
    answers: dict[str, Callable[..., object]] = {"is_available": lambda: count > 0, "device_count": lambda: count}
    capability = _capability(job.platform.arch)
    if capability is not None:
        answers["get_device_capability"] = lambda device=None: capability
    before = {name: getattr(cuda, name) for name in answers}
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(cuda, name, function)


def _capability(arch: str | None) -> tuple[int, int] | None:
    """Return (major, minor) as torch gives it: sm_90 is 9.0, and gfx942 is 9.4."""
    digits = re.fullmatch(r"sm_(\d+)(\d)[a-z]?", arch or "") or re.fullmatch(r"gfx(\d+)(\d)[0-9a-f]", arch or "")
    return (int(digits[1]), int(digits[2])) if digits else None


def before_import_context(spec: AttemptSpec, job: JobConfig, backend_version: str) -> PatchContext:
    """Return what patches see before the backend is imported; the same in the server and in a rank."""
    return PatchContext(
        job=job,
        backend=job.backend.name,
        backend_version=backend_version,
        backend_commit=spec.backend_commit,
        torch_version=_installed("torch"),
        stage=job.module,
    )


def _unfit() -> str | None:
    # Forks once, at which OpenBLAS, that numpy loads, ends its threads: here for good, and each rank starts its own.
    touched = _device_touched(sys.modules.get("torch"))
    threads = thread_count()
    if threads != 1:
        return f"{threads} threads run in it, and a fork copies only one"
    return touched


def thread_count() -> int:
    """Return how many threads this process has, those of native libraries included (Linux)."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


def _device_touched(torch: Any) -> str | None:
    """Ask a forked child whether it could use a device, if torch is there: the server cannot see that it may not."""
    child = os.fork()
    if child == 0:
        bad = getattr(torch._C, "_cuda_isInBadFork", lambda: False) if torch is not None else lambda: False
        os._exit(int(bool(bad())))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == 0 else "an import asked for the devices in it, and no forked rank could use one any more"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
