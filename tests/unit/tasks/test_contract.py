"""The contract of a task: what is accepted, and how loudly a breach fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import REQUIRED, key
from primus_hydra.errors import UserError
from primus_hydra.tasks import contract
from primus_hydra.tasks.contract import Task, contract_faults, make_task, task_class, task_options
from primus_hydra.tasks.deps import Deps
from primus_hydra.tasks.patches import Patches


class Good(Task):
    name = "good"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        rounds: int = key(2, "How often.", gt=0)
        target: str = key(REQUIRED, "At what.")

    def run(self, composed: Composed) -> int:
        return 0


def broken(**changes: Any) -> type[Task]:
    return type("Broken", (Good,), changes)


def options(*, frozen: bool = True, **fields: Any) -> type[Any]:
    annotations = {name: kind for name, (kind, _) in fields.items()}
    members = {name: default for name, (_, default) in fields.items()}
    return dataclass(frozen=frozen, kw_only=True)(type("Options", (), {"__annotations__": annotations, **members}))


@pytest.mark.parametrize("task", [Good, Deps, Patches])
def test_a_task_that_keeps_the_contract_has_no_fault(task: type[Task]) -> None:
    assert contract_faults(task) == []


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        (broken(name=None), "`name` must be one word"),
        (broken(name="two words"), "`name` must be one word"),
        (broken(needs_host="yes"), "`needs_host` must be True or False"),
        (type("NoRun", (Task,), {"name": "x", "Options": Good.Options}), "it does not define run"),
        (type("NoOptions", (Task,), {"name": "x", "run": Good.run}), "no nested dataclass `Options`"),
        (broken(Options=dict), "no nested dataclass `Options`"),
        (broken(Options=options(frozen=False)), "`Options` is not frozen"),
        (broken(Options=options(depth=(int, 1))), "`Options.depth` is not declared with key()"),
        (broken(Options=options(depth=(int, key(1, " ")))), "`Options.depth` has no doc"),
        (broken(Options=options(depth=(int, key("deep", "How deep.")))), "the default of `Options.depth`"),
        (broken(Options=options(depth=(int, key(0, "How deep.", gt=0)))), "the default of `Options.depth`"),
        (broken(Options=options(depth=(set, key(None, "How deep.")))), "type that the validator does not know"),
    ],
)
def test_a_breach_of_the_contract_is_named(task: type[Task], fault: str) -> None:
    assert any(fault in found for found in contract_faults(task))


def test_a_class_that_breaks_the_contract_is_refused_with_every_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bad(Task):
        name = "no word"
        Options = dict

    Bad.__module__ = contract.__name__
    monkeypatch.setattr(contract, "Bad", Bad, raising=False)

    with pytest.raises(UserError) as caught:
        task_class("primus_hydra.tasks.contract.Bad")

    assert len(caught.value.problems) == 3
    assert all(problem.key == "task._target_" for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "no task is chosen"),
        ("primus_hydra.errors.Problem", "is not a Task"),
        ("os.system", "is refused"),
    ],
)
def test_what_is_no_task_is_refused(target: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        task_class(target)


def test_options_come_from_the_node_without_its_target() -> None:
    built, problems = task_options(Good, {"_target_": "x.Good", "target": "moon"})

    assert problems == []
    assert built == Good.Options(rounds=2, target="moon")


def test_all_wrong_options_are_reported_with_their_keys() -> None:
    built, problems = task_options(Good, {"_target_": "x.Good", "rounds": 0, "tarjet": "moon"})

    assert built is None
    assert {problem.key for problem in problems} == {"task.rounds", "task.tarjet", "task.target"}


def test_a_task_node_becomes_a_task_with_its_options() -> None:
    task = make_task({"_target_": "primus_hydra.tasks.deps.Deps", "all": True})

    assert isinstance(task, Deps)
    assert task.options == Deps.Options(all=True)
    with pytest.raises(UserError, match=r"task\.al: there is no such key\n    did you mean task\.all"):
        make_task({"_target_": "primus_hydra.tasks.deps.Deps", "al": True})
