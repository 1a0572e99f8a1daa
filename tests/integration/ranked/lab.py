"""Real text, prepared once, and run directories in which a server of ranks trains on it."""

from __future__ import annotations

import argparse
import inspect
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.data.prepare import prepare_data
from tests.integration.ranked.driver import Result, Scenario, choose
from tests.integration.ranked.ranks import RankServer
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

    def checkpoint(self, run: str, step: int) -> Path:
        """Folder of a checkpoint of a run."""
        return self.root / run / "checkpoints" / f"step-{step}"

    def checkpoints(self, run: str) -> list[str]:
        """Names of the checkpoints of a run."""
        return sorted(path.name for path in (self.root / run / "checkpoints").iterdir())

    def copy(self, run: str, target: str) -> None:
        """Copy a run directory."""
        shutil.copytree(self.root / run, self.root / target)

    def train(self, world_size: int, *scenarios: Scenario) -> list[list[Result]]:
        """Run scenarios; return the results of each rank."""
        return self.server.train(world_size, scenarios, self.root / "ranks" / Path(scenarios[0].run_dir).name)


@contextmanager
def open_lab(backend: str, root: Path, settings: dict[str, Any]) -> Iterator[Lab]:
    """Prepare the text and start the server of a backend; `settings` go over what all trainings have in common."""
    server = RankServer(backend, root / "server.txt")
    try:
        (root / "text").mkdir()
        for module in (argparse, inspect):
            (root / "text" / f"{module.__name__}.txt").write_text(inspect.getsource(module))
        settings = _common(root) | choose(backend) | settings
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PRIMUS_CACHE", str(root / "cache"))
            data = prepare_data(make_job(settings), report=lambda line: None).to_json()
        yield Lab(root=root, server=server, settings=settings, data=data)
    finally:
        server.close()


def _common(root: Path) -> dict[str, Any]:
    return {
        "data.kind": "text",
        "data.path": str(root / "text"),
        "data.validation_fraction": 0.1,
        "tokenizer.vocab_size": 512,
        "training.steps": STEPS,
        "optimizer.lr": 3e-3,
        "lr_schedule.warmup_steps": 2,
        "checkpoint.every": 10,
        "validation.enable": True,
        "validation.every": 10,
        "validation.steps": 2,
    }


def losses_of(results: list[list[Result]], *, reporter: int = 0, scenario: int = 0) -> dict[int, float]:
    """Return the losses of the one rank that reports, and check that it is the only one."""
    assert [ranks[scenario].error for ranks in results] == [None] * len(results)
    reporting = [bool(ranks[scenario].metrics) for ranks in results]
    assert reporting == [rank == reporter for rank in range(len(results))]
    return results[reporter][scenario].losses
