"""A server of ranks in the environment of upstream's loop: it imports Megatron once and forks fresh ranks for requests.

Every line on standard input is a request, {"world_size": n, "scenarios": [...], "folder": "..."} or {"describe":
FOLDER}; the answer is a line with the exit codes. The ranks run the scenarios one after the other and leave what they
saw in FOLDER/rank-N.json. A scenario may also be a training of `backend=megatron`, to compare with.
Everything a run offers to a trainer is kept in memory here, so that a test sees what the trainer itself does.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import socket
import sys
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
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.contracts import BackendAdapter, RankContext, StepMetrics
from tests.integration.megatron_training.symptoms import observe, taking_override, told
from tests.integration.megatron_training.words import OURS, UPSTREAM
from tests.support import make_job

_TIMEOUT_S = 100


@dataclass(kw_only=True)
class Scenario:
    """One training: the job's overrides, its run directory, and what happens in the middle."""

    overrides: dict[str, Any]
    run_dir: str
    data: dict[str, Any]
    resume_from: int | None = None
    stop_at: int | None = None
    fail_at: int | None = None


@dataclass(kw_only=True)
class Result:
    """What one rank saw of a scenario; `argv` is what upstream was told."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
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
        self._result.completed.append(step)
        if self._rank == 0:
            write_manifest(folder, step)


def run_scenario(scenario: Scenario, rank: int) -> Result:
    """Train as the runtime does, in this process."""
    job, result = make_job(scenario.overrides), Result()
    context = context_of(scenario, job, result, rank)
    adapter = adapter_of(job)
    try:
        native = adapter.convert_config(context)
    except Exception as error:
        result.error = f"{type(error).__name__}: {error}"
        return result
    result.argv = list(getattr(native, "argv", []))
    _patch("build_args", adapter, native)
    trainer = adapter.load_trainer_class(job.module)(native, job, context)
    trainer.setup()
    try:
        trainer.init()
        trainer.train()
    except BaseException as error:
        traceback.print_exc()
        result.error = f"{type(error).__name__}: {error}"
    result.last_step = trainer.step
    trainer.cleanup(on_error=result.error is not None)
    return result


def adapter_of(job: JobConfig) -> BackendAdapter:
    """Return the job's adapter."""
    return load_target(job.backend._target_, BackendAdapter, key="backend._target_")(job)  # type: ignore[type-abstract]


def context_of(scenario: Scenario, job: JobConfig, result: Result, rank: int) -> RankContext:
    """Return what a rank knows, with the test watching."""
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
        backend_version=version("megatron-core"),
        metrics=watch,
        stop=watch,
        ledger=watch,
    )


def _patch(phase: Phase, adapter: BackendAdapter, native: Any = None) -> None:
    context = PatchContext(
        job=adapter.job,
        backend=adapter.name,
        backend_version=version("megatron-core"),
        torch_version=version("torch"),
        native=native,
    )
    run_patches(phase, context)


def _describe(folder: Path) -> None:
    # Only here: it imports the tests of another package.
    from tests.integration.megatron_training.describing import describe

    describe(folder)


def _be_rank(request: dict[str, Any], rank: int) -> NoReturn:
    """Run the scenarios of a request in a forked process; never returns."""
    folder, code = Path(request.get("folder") or request["describe"]), 1
    try:
        log = os.open(folder / f"log-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if "describe" in request:
            _describe(folder)
            observe(folder, _before[0])
            os._exit(0)
        # A rank that hangs says where, before the test gives up on it.
        faulthandler.dump_traceback_later(_TIMEOUT_S, exit=True)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(request["world_size"])}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        results = []
        for number, entry in enumerate(request["scenarios"]):
            # A port for each: a rank that is quicker would meet the store of a slower one's last training.
            os.environ["MASTER_PORT"] = _port(folder / f"port-{number}", rank)
            results.append(asdict(run_scenario(Scenario(**entry), rank)))
        (folder / f"rank-{rank}.json").write_text(json.dumps(results))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _port(file: Path, rank: int) -> str:
    """Return a port that rank 0 finds free now, and tells the others through a file."""
    if rank == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            partial = file.with_suffix(".new")
            partial.write_text(str(probe.getsockname()[1]))
        partial.rename(file)
    while not file.exists():
        time.sleep(0.01)
    return file.read_text()


def _serve(request: dict[str, Any]) -> list[int]:
    children = []
    for rank in range(request.get("world_size", 1)):
        child = os.fork()
        if child == 0:
            _be_rank(request, rank)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


_before: list[str] = []
"""What was seen before the first patch."""


def prepare() -> None:
    """Import both loops, with the patches that come before."""
    _before.append(told(taking_override))
    for overrides in (UPSTREAM, OURS):
        adapter = adapter_of(make_job(overrides))
        load_patches(adapter.name)
        if overrides is UPSTREAM:
            _patch("before_import", adapter)
        adapter.prepare_backend()
        adapter.load_trainer_class("pretrain")
    # Reads the sources of upstream's classes; the ranks need it too.
    importlib.import_module("primus_hydra.backends.megatron.training.parser").upstream_arguments()


def main() -> None:
    """Serve until standard input ends."""
    prepare()
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
