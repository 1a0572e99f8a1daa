"""Real text, prepared once, and the trainings of one process that other tests compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.integration.ranked.driver import Result, Scenario
from tests.integration.ranked.lab import Lab, open_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    # Context parallelism needs 128 tokens per rank.
    with open_lab("torchtitan", tmp_path_factory.mktemp("torchtitan"), {"training.seq_length": 256}) as lab:
        yield lab


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
                "checkpoint.keep_every": 4,
                "checkpoint.async_mode": "async",
            },
            stop_at=6,
        ),
        "export": lambda: lab.scenario("export", {**quiet, "training.steps": 1, "checkpoint.export_hf": True}),
    }
    (results,) = lab.train(1, *(make() for make in scenarios.values()))
    return dict(zip(scenarios, results, strict=True))
