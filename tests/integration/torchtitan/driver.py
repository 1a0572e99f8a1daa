"""A server of ranks: it imports torchtitan once and forks fresh ranks for each request, without launcher or runtime.

Every line on standard input is a request, {"world_size": n, "scenarios": [...], "folder": "..."}; the answer is a line
with the exit codes. The ranks run the scenarios one after the other and leave what they saw in FOLDER/rank-N.json.
Everything a run offers to a trainer is kept in memory here, so that a test sees what the trainer itself does.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import sys
import traceback
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from primus_hydra.backends.torchtitan.adapter import TorchTitanAdapter
from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepared import PreparedData
from primus_hydra.patching import PatchContext, Phase, load_patches, run_patches
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.contracts import RankContext, StepMetrics
from tests.support import make_job

_TIMEOUT_S = 120


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
        self._result.completed.append(step)


def run_scenario(scenario: Scenario, rank: int) -> Result:
    """Train as the runtime does, in this process."""
    job, result = make_job(scenario.overrides), Result()
    context = _context(scenario, job, result, rank)
    adapter = TorchTitanAdapter(job)
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


def _context(scenario: Scenario, job: JobConfig, result: Result, rank: int) -> RankContext:
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
        backend_version="0.3.0",
        metrics=watch,
        stop=watch,
        ledger=watch,
    )


def _patch(phase: Phase, adapter: TorchTitanAdapter, native: Any = None) -> None:
    context = PatchContext(
        job=adapter.job,
        backend="torchtitan",
        backend_version=adapter.detect_backend_version(),
        torch_version=version("torch"),
        native=native,
    )
    run_patches(phase, context)


def _be_rank(request: dict[str, Any], rank: int, port: int) -> NoReturn:
    """Run the scenarios of a request in a forked process; never returns."""
    folder, code = Path(request["folder"]), 1
    try:
        log = os.open(folder / f"log-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # A rank that hangs says where, before the test gives up on it.
        faulthandler.dump_traceback_later(_TIMEOUT_S, exit=True)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(request["world_size"])}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        results = [asdict(run_scenario(Scenario(**entry), rank)) for entry in request["scenarios"]]
        (folder / f"rank-{rank}.json").write_text(json.dumps(results))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _serve(request: dict[str, Any]) -> list[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    children = []
    for rank in range(request["world_size"]):
        child = os.fork()
        if child == 0:
            _be_rank(request, rank, port)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main() -> None:
    """Serve until standard input ends."""
    adapter = TorchTitanAdapter(make_job())
    load_patches("torchtitan")
    _patch("before_import", adapter)
    adapter.prepare_backend()
    adapter.load_trainer_class("pretrain")
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
