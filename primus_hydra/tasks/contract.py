"""The contract of a task: what to do with the composed configuration, and the options that are the task's own.

A task is a class with a `name` and a nested frozen dataclass `Options`, each field declared with `key()`. Its options
stand under `task.*` beside `_target_`. Packages outside add tasks; a class that breaks the contract is refused with
everything that is wrong with it, before it is used.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from primus_hydra.config.build import build
from primus_hydra.config.composed import Composed
from primus_hydra.config.instantiate import TARGET, load_target
from primus_hydra.config.launchers import LAUNCHER_GROUP
from primus_hydra.config.schema import REQUIRED, info_of
from primus_hydra.errors import ExitCode, Problem, UserError, raise_all

if TYPE_CHECKING:
    from primus_hydra.config.sweep import SkippedPoint  # its module imports Hydra, and completion this one


@dataclass(frozen=True, kw_only=True)
class PointEnd:
    """What a sweeper is told of a point: the value of its metric, or why it has none."""

    value: float | None = None
    problem: str | None = None


class OpenSweep(Protocol):
    """A sweep whose points come in batches, as a sweeper chooses them."""

    def run(self, points: Sequence[Composed | SkippedPoint | UserError]) -> Sequence[PointEnd]:
        """Run the points of a batch to their ends; an error stands for one that cannot be composed.

        One bad point stops no other. Raises SweepStopped when somebody asked for a stop.
        """

    def close(self) -> int:
        """Say what came of all points, and return the exit code of the command."""


class SweepStopped(Exception):
    """Somebody asked the command to stop: a sweeper must choose no more points."""


class Task(ABC):
    """What to do with a composed configuration.

    `needs_host`: the task runs on the platform that the configuration names, so this machine must be of that kind.
    `slurm` is what it makes of `hydra/launcher=submitit`: it `submits` jobs, or `ignores` it as it only looks; by
    default it is refused, for a task would run on the login node that somebody wanted on other nodes.
    `sweeps_options`: a sweep over the task's own options comes to it as one; else each point is a command of its own.
    """

    name: ClassVar[str]
    needs_host: ClassVar[bool] = False
    slurm: ClassVar[Literal["submits", "ignores"] | None] = None
    sweeps_options: ClassVar[bool] = False
    Options: ClassVar[type[Any]]

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def run(self, composed: Composed) -> int:
        """Do it, and return the exit code of the command; raises UserError or HostError with all problems."""

    def run_points(self, points: Sequence[Composed]) -> int:
        """Do it for every point of a sweep; one after the other, unless a task has one answer for all of them."""
        return max((self.run(point) for point in points), default=int(ExitCode.DONE))

    def run_sweep(self, points: Sequence[Composed], skipped: Sequence[SkippedPoint]) -> int:
        """Do it for the points of a sweep; `skipped` are those whose layout is illegal, which were told already."""
        del skipped
        return self.run_points(points)

    def open_sweep(self) -> OpenSweep:
        """Begin a sweep whose points a sweeper chooses; raises UserError for a task that measures nothing."""
        what = f"task={self.name} measures nothing by which a sweeper could choose"
        raise UserError(Problem(key="hydra/sweeper", what=what, hint="sweep with task=train, or leave the sweeper out"))


def task_class(target: object) -> type[Task]:
    """Load the class of a task by its import path and hold it to the contract; raises UserError."""
    if not isinstance(target, str):
        raise UserError(Problem(key=f"task.{TARGET}", what="no task is chosen", hint="choose one: task=..."))
    found = load_target(target, Task, key=f"task.{TARGET}")  # type: ignore[type-abstract]
    raise_all(
        [
            Problem(key=f"task.{TARGET}", what=f"{target} breaks the contract of a task: {fault}")
            for fault in contract_faults(found)
        ]
    )
    return found


def task_options(task: type[Task], node: Mapping[str, Any]) -> tuple[Any | None, list[Problem]]:
    """Build the options of a task from its node of the tree; return None with every problem found."""
    values = {name: value for name, value in node.items() if name != TARGET}
    return build(task.Options, values, prefix="task")


def make_task(node: Mapping[str, Any]) -> Task:
    """Return the task that a `task` node describes; raises UserError with all problems."""
    task = task_class(node.get(TARGET))
    options, problems = task_options(task, node)
    raise_all(problems)
    return task(options)


def go_together(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the `task` nodes of a sweep's points are one task's: the same, or of one that sweeps its options."""
    if all(node == nodes[0] for node in nodes):
        return True
    targets = {node.get(TARGET) for node in nodes}
    return len(targets) == 1 and task_class(targets.pop()).sweeps_options


def refuse_launcher(task: Task, composed: Composed) -> None:
    """Raise UserError if a task would run here what was meant for Slurm's nodes."""
    if composed.launcher == "submitit" and task.slurm is None:
        what = f"task={task.name} runs where it is typed, and submits nothing to Slurm"
        hint = "leave hydra/launcher out, and type the command within an allocation (salloc, srun)"
        raise UserError(Problem(key=LAUNCHER_GROUP, what=what, hint=hint))


def contract_faults(task: type[Task]) -> list[str]:
    """Say everything by which a task class breaks the contract."""
    faults = []
    if not isinstance(getattr(task, "name", None), str) or not task.name.isidentifier():
        faults.append("`name` must be one word")
    if not isinstance(getattr(task, "needs_host", None), bool):
        faults.append("`needs_host` must be True or False")
    if getattr(task, "slurm", None) not in ("submits", "ignores", None):
        faults.append("`slurm` must be 'submits', 'ignores' or None")
    if missing := sorted(getattr(task, "__abstractmethods__", ())):
        faults.append(f"it does not define {', '.join(missing)}")
    return faults + _options_faults(getattr(task, "Options", None))


def _options_faults(options: Any) -> list[str]:
    if not inspect.isclass(options) or not dataclasses.is_dataclass(options):
        return ["it has no nested dataclass `Options`"]
    if not options.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return ["`Options` is not frozen"]
    fields = [fault for field in dataclasses.fields(options) for fault in _field_faults(field)]
    return fields or _default_faults(options)


def _field_faults(field: dataclasses.Field[Any]) -> list[str]:
    try:
        documented = bool(info_of(field).doc.strip())
    except TypeError:
        return [f"`Options.{field.name}` is not declared with key()"]
    return [] if documented else [f"`Options.{field.name}` has no doc"]


def _default_faults(options: type[Any]) -> list[str]:
    """Let the validator judge the defaults: a type that it does not know, or a default out of bounds, shows here."""
    required = {field.name for field in dataclasses.fields(options) if field.default is REQUIRED}
    try:
        _, problems = build(options, {})
    except TypeError as error:
        return [f"`Options`: {error}"]
    return [f"the default of `Options.{p.key}`: {p.what}" for p in problems if p.key not in required]
