"""`-m` with a sweeper that chooses its points by the results of those before (`hydra/sweeper=optuna`).

The sweeper is Hydra's plugin, set up as Hydra would; its points are checked, run and told of as those of any sweep.
What it writes lies in the sweep's folder. Refuses a sweeper that is not installed, and a task that measures nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.primus_hydra_plugins.launcher import GatheringLauncher
from primus_hydra.config.compose import Request, spell_for_hydra
from primus_hydra.config.composed import Composed
from primus_hydra.config.groups import Groups
from primus_hydra.config.loader import RecordingLoader, new_loader
from primus_hydra.config.points import Points
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.config.sweep import SkippedPoint, sweep_layouts
from primus_hydra.errors import ExitCode, PrimusError, Problem, UserError
from primus_hydra.tasks.contract import OpenSweep, PointEnd, SweepStopped, make_task, refuse_launcher
from primus_hydra.tasks.run_folder import folder_name
from primus_hydra.ui.screen import show

SWEEPER_GROUP = "hydra/sweeper"
_RATE = "max_failure_rate"


def run_sampled(request: Request, points: Points, sweeper: str) -> int:
    """Let a sweeper choose and judge points until it has enough; return the highest exit code of the points.

    Raises UserError with all problems of the call.
    """
    setup_globals()
    loader = new_loader()
    _refuse_missing(sweeper, Groups(loader.repository))
    config = sweeper_config(loader, request, _folder(points))
    front = SampledPoints(points)
    context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
    try:
        plugin = Plugins.instance().instantiate_sweeper(config=config, hydra_context=context, task_function=front)
        plugin.sweep(arguments=[str(word) for word in config.hydra.overrides.task])
    except SweepStopped:
        pass
    except PrimusError:
        front.close()
        raise
    except Exception as error:
        return _gave_up(error, front.close(), sweeper)
    return front.close()


class SampledPoints:
    """What a launcher calls with each batch."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._sweep: OpenSweep | None = None

    def __call__(self, config: DictConfig) -> Any:
        """Refuse: a launcher that runs points by itself would run them unchecked."""
        raise UserError(
            Problem(key="hydra/launcher", what="a sweeper's points run through the launchers of this command")
        )

    def run_batch(self, batch: Sequence[Sequence[str]]) -> Sequence[PointEnd]:
        """Compose the points of a batch and run them; raises UserError for a task that cannot be swept like this."""
        points = [self._composed(overrides) for overrides in batch]
        if self._sweep is None:
            self._sweep = _open_sweep(points)
        return self._sweep.run(points)

    def close(self) -> int:
        """Say what came of all points; return the highest exit code, 0 where none was chosen."""
        return int(ExitCode.DONE) if self._sweep is None else self._sweep.close()

    def _composed(self, overrides: Sequence[str]) -> Composed | SkippedPoint | UserError:
        try:
            point = self._points.sampled(overrides)
        except UserError as error:
            return error
        return next(iter(sweep_layouts([point])[1]), point)


def _open_sweep(points: Sequence[Composed | SkippedPoint | UserError]) -> OpenSweep:
    """Let the task of the first batch begin; raises what is wrong with all of its points where none is a job."""
    jobs = [point.point if isinstance(point, SkippedPoint) else point for point in points]
    first = next((job for job in jobs if isinstance(job, Composed)), None)
    if first is None:
        raise UserError(*dict.fromkeys(one for job in jobs if isinstance(job, UserError) for one in job.problems))
    task = make_task(first.job.task)
    refuse_launcher(task, first)
    return task.open_sweep()


def _folder(points: Points) -> Path:
    """Return the folder of the sweep: that of the points' runs."""
    run = points.shared_tree()["run"]
    return Path(run["dir"]).expanduser().absolute() / folder_name(run["name"] or points.name())


def sweeper_config(loader: RecordingLoader, request: Request, folder: Path) -> DictConfig:
    """Return the configuration that sweeper and launcher are made of; raises UserError for keys that it has not."""
    try:
        config = loader.load_configuration(request.config_name, spell_for_hydra(request), RunMode.MULTIRUN)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(Problem(key="hydra.sweeper", what=_words(error), hint="--cfg hydra shows its keys")) from None
    with open_dict(config.hydra):
        # Hydra's own one for this machine would run the points of a batch itself, each composed by Hydra again.
        config.hydra.launcher = {"_target_": f"{GatheringLauncher.__module__}.{GatheringLauncher.__name__}"}
        if config.hydra.sweep.dir == ".":
            config.hydra.sweep.dir = str(folder)
        # By default one bad point would end the search, and with it the points that wait for their turn.
        if config.hydra.sweeper.get(_RATE) == 0 and not _typed(request, f"hydra.sweeper.{_RATE}"):
            config.hydra.sweeper[_RATE] = 1.0
    OmegaConf.set_readonly(config.hydra, True)
    return config


def _typed(request: Request, key: str) -> bool:
    return any(word.partition("=")[0].lstrip("+") == key for word in request.overrides)


def _refuse_missing(sweeper: str, groups: Groups) -> None:
    there = groups.options(SWEEPER_GROUP)
    if sweeper not in there:
        near = did_you_mean(sweeper, there)
        hint = near or f"sweepers are plugins of Hydra: pip install 'primus-hydra[optuna]'; here: {', '.join(there)}"
        raise UserError(Problem(key=SWEEPER_GROUP, what=f"there is no sweeper {sweeper!r}", hint=hint))


def _gave_up(error: Exception, code: int, sweeper: str) -> int:
    """Say that a sweeper ended early; where no point failed, that is all there is to tell of it."""
    what = f"the sweeper gave up: {_words(error)}"
    if code == ExitCode.DONE:
        raise UserError(Problem(key=f"{SWEEPER_GROUP}={sweeper}", what=what)) from error
    show(f"{what}\n", sys.stderr)
    return code


def _words(error: Exception) -> str:
    lines = str(error).splitlines()
    cause = str(error.__cause__).splitlines()[:1] if error.__cause__ is not None else []
    return "; ".join([*(lines[:1] or [type(error).__name__]), *cause])
