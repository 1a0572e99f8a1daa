from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.native.catalog import LiveCatalog
from primus_hydra.native.describe import name_of
from primus_hydra.native.overlay import Builder, overlay
from tests.unit.native.shapes import TARGETS, BigMotor, Body, Car, Colour, Motor, car

HERE = "tests.unit.native.shapes"


def laid_over(tree: dict[str, Any], **rest: Any) -> Car:
    config, problems = overlay(car(), tree, targets=TARGETS, **rest)
    assert problems == []
    assert config is not None
    return config


def messages(tree: dict[str, Any], **rest: Any) -> list[str]:
    config, problems = overlay(car(), tree, targets=TARGETS, **rest)
    assert config is None
    return [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("tree", "value"),
    [
        ({"colour": "green"}, Colour.green),
        ({"size": 3}, 3),
        ({"size": None}, None),
        ({"shape": "egg"}, "egg"),
        ({"doors": [1, 2.5]}, [1.0, 2.5]),
        ({"window": [1, 2]}, (1, 2)),
        ({"names": {"a": 1}}, {"a": 1.0}),
        ({"scope": "green"}, "green"),
        ({"scope": ["green"]}, [Colour.green]),
        ({"layout": [[1], "x"]}, [[1], "x"]),
        ({"layout": {"power": 2}}, Motor(power=2.0)),
    ],
)
def test_a_value_reaches_the_object_as_its_type(tree: dict[str, Any], value: Any) -> None:
    found = getattr(laid_over({"body": tree}).body, next(iter(tree)))
    assert (found, type(found)) == (value, type(value))


def test_a_whole_number_becomes_a_float_where_one_is_asked_for() -> None:
    assert type(laid_over({"motor": {"power": 3}}).motor.power) is float


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"moter": {}}, "backend.config.moter: toy has no such key here\n    did you mean backend.config.motor?"),
        ({"motor": {"colour": "red"}}, "did you mean backend.config.body.colour?"),
        ({"body": {"colour": "gren"}}, "expects one of red, green, not the text 'gren'\n    did you mean green?"),
        ({"body": {"colour": 1}}, "expects one of red, green, not 1"),
        ({"body": {"size": "big"}}, "expects a whole number or null, not the text 'big'"),
        ({"body": {"size": True}}, "expects a whole number or null, not true"),
        ({"body": {"shape": "bax"}}, "expects one of box, egg, not the text 'bax'"),
        ({"body": {"doors": "two"}}, "expects a list, not the text 'two'"),
        ({"body": {"doors": [1, "two"]}}, "backend.config.body.doors[1]: expects a number, not the text 'two'"),
        ({"body": {"window": [1, 2, 3]}}, "expects a list of 2 items or null, not the list [1, 2, 3]"),
        ({"body": {"names": 1}}, "expects a group of keys, not 1"),
        ({"body": {"names": {"a": "x"}}}, "backend.config.body.names.a: expects a number"),
        ({"body": {"scope": 1}}, "expects text or one of red, green or a list, not 1"),
        ({"body": {"paint": "red"}}, "backend.config.body.paint: can only be set by code"),
        ({"body": {"paint": None}}, "can only be set by code"),
        ({"body": {"_hidden": 1}}, "can only be set by code"),
        ({"on_start": "x"}, "can only be set by code"),
        ({"body": 3}, "backend.config.body: expects a group of keys, not 3"),
        ({"motor": {"max_steps": 1}}, "max_steps is called training.steps here"),
        ({"motor": {"zzz": 1}}, "keys here: power, torque, wheels"),
        ({"motor": {"_target_": f"{HERE}.Body"}}, f"{HERE}.Body is not a {HERE}.Motor"),
        ({"motor": {"_target_": f"{HERE}.Nothing"}}, f"toy has no {HERE}.Nothing"),
        ({"motor": {"_target_": f"{HERE}.start"}}, "is not a configuration class\n    name a dataclass"),
        ({"motor": {"_target_": "os.path.join"}}, "name a class of toy, or of a package that declares itself"),
    ],
)
def test_a_wrong_key_is_explained(tree: dict[str, Any], expected: str) -> None:
    found = messages(tree)
    assert any(expected in message for message in found), found


def test_every_problem_is_reported_at_once() -> None:
    assert len(messages({"motor": {"power": "x", "wheels": 1.5}, "body": {"colour": 3}})) == 3


def test_what_a_class_refuses_is_a_problem_at_its_place() -> None:
    assert messages({"motor": {"power": -1}}) == [
        "backend.config.motor: toy refuses these values: power must not be negative"
    ]


def test_an_assertion_without_words_shows_its_source() -> None:
    assert "toy refuses these values: assert self.wheels != 13" in messages({"motor": {"wheels": 13}})[0]


def test_a_target_takes_over_the_values_that_both_classes_have() -> None:
    motor = laid_over({"motor": {"_target_": f"{HERE}.BigMotor", "turbo": True}}).motor
    assert (type(motor), motor.power, motor.turbo) == (BigMotor, 4.0, True)  # type: ignore[attr-defined]


def test_a_kept_place_takes_only_what_derives_from_its_class() -> None:
    config = Car(motor=BigMotor(), body=Body(), on_start=car)
    tree = {"motor": {"_target_": f"{HERE}.Motor"}}
    assert overlay(config, tree, targets=TARGETS)[1] == []
    assert overlay(config, tree, targets=TARGETS, keep=frozenset({"motor"}))[0] is None


def test_a_class_is_built_once_from_arguments_and_keys() -> None:
    builder = Builder("toy", LiveCatalog({name_of(Motor): Motor}, TARGETS))
    motor = builder.construct(Motor, {"power": 4.0, "unknown": 1}, {"power": 10}, "motor")
    assert (motor.power, motor.torque) == (10.0, 5.0)
    assert builder.construct(Motor, {"power": -4.0}, {}, "motor") is None
    assert [problem.key for problem in builder.problems] == ["backend.config.motor"]
