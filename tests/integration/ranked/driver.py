"""A server of ranks: it imports one backend once and forks fresh ranks for each request, without launcher or runtime.

    python -m tests.integration.ranked.driver BACKEND

Every line on standard input is a request, {"world_size": n, "scenarios": [...], "folder": "..."}; the answer is a line
with the exit codes. The ranks run the scenarios one after the other and leave what they saw in FOLDER/rank-N.json.
Everything a run offers to a trainer is kept in memory here, so that a test sees what the trainer itself does.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from primus_hydra.config.instantiate import load_target
from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepared import PreparedData
from primus_hydra.patching import PatchContext, Phase, load_patches, run_patches
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.contracts import BackendAdapter, RankContext, StepMetrics
from primus_hydra.runtime.ledger import FileLedger
from tests.support import make_job

_TIMEOUT_S = 120
_ADAPTERS = {
    "torchtitan": "primus_hydra.backends.torchtitan.adapter.TorchTitanAdapter",
    "megatron": "primus_hydra.backends.megatron.adapter.MegatronAdapter",
}


def choose(backend: str) -> dict[str, Any]:
    """Return the overrides that name a backend."""
    return {"backend._target_": _ADAPTERS[backend], "backend.name": backend}


@dataclass(kw_only=True)
class Scenario:
    """One training: the job's overrides, its run directory, and what happens in the middle."""

    overrides: dict[str, Any]
    run_dir: str
    data: dict[str, Any]
    resume_from: int | None = None
    stop_at: int | None = None
    fail_at: int | None = None
    before: str | None = None
    """`module:function` that each rank calls first, with its number; what it changes stays for the scenarios after."""


@dataclass(kw_only=True)
class Result:
    """What one rank saw of a scenario."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)
    last_step: int = 0
    error: str | None = None

    @property
    def losses(self) -> dict[int, float]:
        """Loss by step."""
        return {entry["step"]: entry["loss"] for entry in self.metrics}


class _Watch:
    """The run, as the trainer sees it."""

    def __init__(self, scenario: Scenario, result: Result, rank: int) -> None:
        self._scenario = scenario
        self._result = result
        self._rank = rank

    def log(self, metrics: StepMetrics) -> None:
        self._result.metrics.append(asdict(metrics))

    def agreed(self, step: int) -> bool:
        if step == self._scenario.fail_at and self._rank == 0:
            raise RuntimeError("the rank breaks")
        return step == self._scenario.stop_at

    def completed(self, step: int) -> None:
        folder = RunPaths(Path(self._scenario.run_dir)).checkpoint(step)
        assert (folder / ".metadata").is_file(), "a checkpoint is called complete before it is"
        FileLedger(RunPaths(Path(self._scenario.run_dir)), self._rank).completed(step)
        self._result.completed.append(step)


def run_scenario(scenario: Scenario, rank: int) -> Result:
    """Train as the runtime does, in this process."""
    job, result = make_job(scenario.overrides), Result()
    adapter = _adapter(job)
    context = _context(scenario, job, result, rank, adapter.detect_backend_version())
    native = adapter.convert_config(context)
    _patch("build_args", adapter, native)
    trainer = adapter.load_trainer_class(job.module)(native, job, context)
    trainer.setup()
    try:
        trainer.init()
        trainer.train()
    except Exception as error:
        result.error = f"{type(error).__name__}: {error}"
    result.last_step = trainer.step
    trainer.cleanup(on_error=result.error is not None)
    return result


def _run_in_time(scenario: Scenario, rank: int) -> Result:
    # A rank that hangs says where, before the test gives up on it.
    faulthandler.dump_traceback_later(_TIMEOUT_S, exit=True)
    if scenario.before is not None:
        module, _, function = scenario.before.partition(":")
        getattr(importlib.import_module(module), function)(rank)
    return run_scenario(scenario, rank)


def _adapter(job: JobConfig) -> BackendAdapter:
    return load_target(job.backend._target_, BackendAdapter, key="backend._target_")(job)  # type: ignore[type-abstract]


def _context(scenario: Scenario, job: JobConfig, result: Result, rank: int, version: str) -> RankContext:
    layout, problems = layout_of(job)
    assert layout is not None, problems
    watch = _Watch(scenario, result, rank)
    return RankContext(
        rank=rank,
        local_rank=rank,
        world_size=layout.world_size,
        local_world_size=layout.world_size,
        attempt=1,
        restart=0,
        paths=RunPaths(Path(scenario.run_dir)),
        layout=layout,
        data=PreparedData.from_json(scenario.data),
        resume_from=scenario.resume_from,
        backend_version=version,
        metrics=watch,
        stop=watch,
        ledger=watch,
    )


def _patch(phase: Phase, adapter: BackendAdapter, native: Any = None) -> None:
    context = PatchContext(
        job=adapter.job,
        backend=adapter.name,
        backend_version=adapter.detect_backend_version(),
        torch_version=version("torch"),
        native=native,
    )
    run_patches(phase, context)


def _be_rank(request: dict[str, Any], rank: int, meeting: Path) -> NoReturn:
    """Run the scenarios of a request in a forked process; never returns."""
    folder, code = Path(request["folder"]), 1
    try:
        log = os.open(folder / f"log-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(request["world_size"])}
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        results = []
        for number, entry in enumerate(request["scenarios"]):
            os.environ["MASTER_PORT"] = _agreed_port(meeting / str(number), rank)
            results.append(asdict(_run_in_time(Scenario(**entry), rank)))
        (folder / f"rank-{rank}.json").write_text(json.dumps(results))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _agreed_port(file: Path, rank: int) -> str:
    """Return a port that is free now: each training has its own, which the first rank chooses when it gets there.

    A rank that is ahead would find the store of the training before it, and a port chosen early is soon another's.
    """
    if rank == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            file.with_suffix(".new").write_text(str(probe.getsockname()[1]))
        file.with_suffix(".new").rename(file)
    deadline = time.monotonic() + _TIMEOUT_S
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("the first rank does not get to this scenario")
        time.sleep(0.005)
    return file.read_text()


def _serve(request: dict[str, Any]) -> list[int]:
    with tempfile.TemporaryDirectory() as meeting:
        children = []
        for rank in range(request["world_size"]):
            child = os.fork()
            if child == 0:
                _be_rank(request, rank, Path(meeting))
            children.append(child)
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main(backend: str) -> None:
    """Serve until standard input ends."""
    adapter = _adapter(make_job(choose(backend)))
    load_patches(backend)
    _patch("before_import", adapter)
    adapter.prepare_backend()
    adapter.load_trainer_class("pretrain")
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
