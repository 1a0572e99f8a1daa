"""The launcher that Hydra's sweepers call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import OmegaConf

from primus_hydra.tasks.contract import PointEnd


class Command:
    def __init__(self) -> None:
        self.batches: list[Sequence[Sequence[str]]] = []

    def __call__(self, config: object) -> None: ...

    def run_batch(self, batch: Sequence[Sequence[str]]) -> Sequence[PointEnd]:
        self.batches.append(batch)
        return [PointEnd(problem="it broke") if "bad" in point else PointEnd(value=0.5) for point in batch]


def launcher(task: Any) -> Launcher:
    """Make the launcher as Hydra does, from the class that it finds among its plugins."""
    found = {plugin.__name__: plugin for plugin in Plugins.instance().discover(Launcher)}
    made: Launcher = found["GatheringLauncher"]()
    made.setup(hydra_context=HydraContext(None, None), task_function=task, config=OmegaConf.create())  # type: ignore[arg-type]
    return made


def test_a_batch_is_given_whole_and_a_bad_point_fails_alone(capsys: pytest.CaptureFixture[str]) -> None:
    command = Command()
    first, bad, last = launcher(command).launch([["a"], ["bad"], ["c"]], initial_job_idx=0)

    assert command.batches == [[["a"], ["bad"], ["c"]]]
    assert (first.return_value, last.return_value) == (0.5, 0.5)
    assert bad.status is JobStatus.FAILED
    with pytest.raises(Exception, match=r"^it broke$"):
        _ = bad.return_value
    assert capsys.readouterr().err == ""


def test_another_application_is_refused() -> None:
    with pytest.raises(TypeError, match="primus_hydra only"):
        launcher(lambda config: None)
