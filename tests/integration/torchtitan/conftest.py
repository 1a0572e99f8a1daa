"""Real text, prepared once, and the trainings of one process that other tests compare with."""

from __future__ import annotations

import argparse
import inspect
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.data.prepare import prepare_data
from tests.integration.torchtitan.driver import Result, Scenario
from tests.integration.torchtitan.ranks import RankServer
from tests.support import make_job

STEPS = 20


@dataclass(kw_only=True)
class Lab:
    """A folder with prepared text and run directories."""

    root: Path
    server: RankServer
    settings: dict[str, Any]
    data: dict[str, Any]

    def scenario(self, run: str, overrides: dict[str, Any] | None = None, **changes: Any) -> Scenario:
        """Describe a training in the run directory `run`."""
        settings = self.settings | (overrides or {})
        return Scenario(overrides=settings, run_dir=str(self.root / run), data=self.data, **changes)

    def checkpoints(self, run: str) -> list[str]:
        """Names of the checkpoints of a run."""
        return sorted(path.name for path in (self.root / run / "checkpoints").iterdir())

    def copy(self, run: str, target: str) -> None:
        """Copy a run directory."""
        shutil.copytree(self.root / run, self.root / target)

    def train(self, world_size: int, *scenarios: Scenario) -> list[list[Result]]:
        """Run scenarios; return the results of each rank."""
        return self.server.train(world_size, scenarios, self.root / "ranks" / Path(scenarios[0].run_dir).name)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("torchtitan")
    server = RankServer(root / "server.txt")
    (root / "text").mkdir()
    for module in (argparse, inspect):
        (root / "text" / f"{module.__name__}.txt").write_text(inspect.getsource(module))
    settings = {
        "data.kind": "text",
        "data.path": str(root / "text"),
        "data.validation_fraction": 0.1,
        "tokenizer.vocab_size": 512,
        "training.steps": STEPS,
        # Context parallelism needs 128 tokens per rank.
        "training.seq_length": 256,
        "optimizer.lr": 3e-3,
        "lr_schedule.warmup_steps": 2,
        "checkpoint.every": 10,
        "validation.enable": True,
        "validation.every": 10,
        "validation.steps": 2,
    }
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PRIMUS_CACHE", str(root / "cache"))
            data = prepare_data(make_job(settings), report=lambda line: None).to_json()
        yield Lab(root=root, server=server, settings=settings, data=data)
    finally:
        server.close()


@pytest.fixture(scope="session")
def alone(lab: Lab) -> dict[str, Result]:
    """Trainings of one process, one after the other."""
    seed = {"checkpoint": {"create_seed_checkpoint": True}}
    quiet = {"validation.enable": False}
    scenarios: dict[str, Callable[[], Scenario]] = {
        "seed": lambda: lab.scenario("seed", {"backend.config": seed}),
        "straight": lambda: lab.scenario("straight"),
        "resumed": lambda: lab.scenario("straight", resume_from=10),
        "ignored": lambda: lab.scenario("straight", {"training.steps": 2, "checkpoint.enable": False}),
        "stopped": lambda: lab.scenario("stopped", {**quiet, "training.steps": 8}, stop_at=5),
        "stopped and resumed": lambda: lab.scenario("stopped", {**quiet, "training.steps": 8}, resume_from=5),
        "not stopped": lambda: lab.scenario("unstopped", {**quiet, "training.steps": 8}),
        "async": lambda: lab.scenario(
            "async",
            {
                **quiet,
                "training.steps": 7,
                "checkpoint.every": 2,
                "checkpoint.keep": 1,
                "checkpoint.async_mode": "async",
            },
            stop_at=6,
        ),
        "export": lambda: lab.scenario("export", {**quiet, "training.steps": 1, "checkpoint.export_hf": True}),
    }
    (results,) = lab.train(1, *(make() for make in scenarios.values()))
    return dict(zip(scenarios, results, strict=True))
