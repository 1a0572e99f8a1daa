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
from typing import Any, ClassVar

from primus_hydra.config.build import build
from primus_hydra.config.composed import Composed
from primus_hydra.config.instantiate import TARGET, load_target
from primus_hydra.config.schema import REQUIRED, info_of
from primus_hydra.errors import ExitCode, Problem, UserError, raise_all


class Task(ABC):
    """What to do with a composed configuration.

    `needs_host`: the task runs on the platform that the configuration names, so this machine must be of that kind.
    """

    name: ClassVar[str]
    needs_host: ClassVar[bool] = False
    Options: ClassVar[type[Any]]

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def run(self, composed: Composed) -> int:
        """Do it, and return the exit code of the command; raises UserError or HostError with all problems."""

    def run_points(self, points: Sequence[Composed]) -> int:
        """Do it for every point of a sweep; one after the other, unless a task has one answer for all of them."""
        return max((self.run(point) for point in points), default=int(ExitCode.DONE))


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


def contract_faults(task: type[Task]) -> list[str]:
    """Say everything by which a task class breaks the contract."""
    faults = []
    if not isinstance(getattr(task, "name", None), str) or not task.name.isidentifier():
        faults.append("`name` must be one word")
    if not isinstance(getattr(task, "needs_host", None), bool):
        faults.append("`needs_host` must be True or False")
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
