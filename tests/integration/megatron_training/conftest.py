"""Real text, prepared once, and the trainings of one process that other tests look at."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.data.prepare import prepare_data
from tests.integration.megatron_training.driver import Result, Scenario
from tests.integration.megatron_training.lane import LaneServer
from tests.integration.megatron_training.words import OURS, UPSTREAM
from tests.support import make_job
from tests.unit.backends.megatron.jobs import V3

STEPS = 8
CROWDED = {"checkpoint.every": 2, "checkpoint.leave_free_gib": 1e9}
"""No disk is as large as what a save must leave here; the last one need not leave it."""
EXPERTS = {**V3, "training.steps": 4, "checkpoint.every": 2, "validation.every": 2}
"""A DeepSeek-V3, whose routers count tokens between the steps."""


@dataclass(kw_only=True)
class Lab:
    """A folder with prepared text and run directories, and the server of ranks."""

    root: Path
    server: LaneServer
    settings: dict[str, Any]
    data: dict[str, Any]

    def scenario(
        self, run: str, overrides: dict[str, Any] | None = None, *, backend: dict[str, Any] = UPSTREAM, **changes: Any
    ) -> Scenario:
        """Describe a training in the run directory `run`."""
        settings = self.settings | backend | (overrides or {})
        return Scenario(overrides=settings, run_dir=str(self.root / run), data=self.data, **changes)

    def checkpoints(self, run: str) -> set[str]:
        """Names of what lies among the checkpoints of a run."""
        return {path.name for path in (self.root / run / "checkpoints").iterdir()}

    def train(self, world_size: int, *scenarios: Scenario) -> list[list[Result]]:
        """Run scenarios; return the results of each rank."""
        return self.server.train(world_size, scenarios, self.root / "ranks" / Path(scenarios[0].run_dir).name)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("megatron_training")
    server = LaneServer(root / "server.txt")
    (root / "text").mkdir()
    for module in (argparse, inspect):
        (root / "text" / f"{module.__name__}.txt").write_text(inspect.getsource(module))
    settings = {
        "data.kind": "text",
        "data.path": str(root / "text"),
        "data.validation_fraction": 0.1,
        "tokenizer.vocab_size": 512,
        "training.steps": STEPS,
        "optimizer.lr": 3e-3,
        "lr_schedule.warmup_steps": 2,
        "checkpoint.every": 4,
        "validation.enable": True,
        "validation.every": 4,
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
def described(lab: Lab) -> Path:
    """The folder with what the server says of upstream without training."""
    folder = lab.root / "describe"
    folder.mkdir()
    lab.server.ask({"describe": str(folder)}, folder, [0])
    return folder


@pytest.fixture(scope="session")
def alone(lab: Lab) -> dict[str, Result]:
    """Trainings of one process, one after the other."""
    quiet = {"validation.enable": False}
    saved = str(lab.root / "straight" / "checkpoints" / f"step-{STEPS}")
    wider = {"model.hidden_size": 128, "init_from": saved}
    background = {"checkpoint.async_mode": "async", "checkpoint.every": 2, "checkpoint.keep": 1}
    scenarios: dict[str, Callable[[], Scenario]] = {
        "straight": lambda: lab.scenario("straight"),
        "ours": lambda: lab.scenario("ours", backend=OURS),
        "resumed": lambda: lab.scenario("straight", resume_from=4),
        "stopped": lambda: lab.scenario("stopped", quiet, stop_at=3),
        "stopped and resumed": lambda: lab.scenario("stopped", quiet, resume_from=3),
        "async": lambda: lab.scenario("async", {**quiet, **background, "checkpoint.keep_every": 4}),
        "no room": lambda: lab.scenario("no room", {**quiet, **CROWDED, "training.steps": 6}),
        "no room at the stop": lambda: lab.scenario("no room at the stop", {**quiet, **CROWDED}, stop_at=4),
        "broken": lambda: lab.scenario("broken", quiet, fail_at=2),
        "refused": lambda: lab.scenario("refused", {"backend.config": {"overlap_param_gather": True}}),
        "unknown": lambda: lab.scenario("unknown", {"backend.config": {"norm_epsilon": 1e-6}}),
        "weights": lambda: lab.scenario("weights", {**quiet, "training.steps": 2, "init_from": saved}),
        "our weights": lambda: lab.scenario(
            "our weights", {**quiet, "training.steps": 2, "init_from": saved}, backend=OURS
        ),
        "experts": lambda: lab.scenario("experts", EXPERTS),
        "experts resumed": lambda: lab.scenario("experts", EXPERTS, resume_from=2),
        "our experts": lambda: lab.scenario("our experts", EXPERTS, backend=OURS),
        "another model": lambda: lab.scenario("another model", {**quiet, **wider}),
    }
    (results,) = lab.train(1, *(make() for make in scenarios.values()))
    return dict(zip(scenarios, results, strict=True))
