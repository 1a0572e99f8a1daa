from __future__ import annotations

import types
from typing import Any

import pytest

from primus_hydra.native.describe import class_at, classes_below, describe_class, describe_type, mentioned, name_of
from tests.unit.native.shapes import Body, Car, Colour, Motor, car


def test_an_enum_is_described_by_the_names_of_its_members() -> None:
    node = describe_class(Body)["fields"]["colour"]
    assert node == {"type": "enum", "choices": ["red", "green"], "default": "red"}


def test_a_torch_dtype_is_known_without_torch() -> None:
    dtype = types.new_class("dtype")
    dtype.__module__ = "torch"
    assert describe_type(dtype) == {"type": "dtype"}
    assert describe_type(Any) == {"type": "any"}


def test_a_field_that_is_none_by_default_may_be_none() -> None:
    node = describe_class(Body)["fields"]["size"]
    assert node == {"type": "union", "any_of": [{"type": "int"}, {"type": "null"}], "default": None}


def test_private_and_derived_fields_are_not_offered() -> None:
    assert describe_class(Body)["fields"]["_hidden"]["type"] == "code"
    assert "built" not in describe_class(Car)["fields"]


def test_classes_are_found_where_they_sit() -> None:
    assert classes_below(car()) == {"": Car, "motor": Motor, "body": Body}
    assert mentioned(describe_class(Car)["fields"]["spare"]) == {name_of(Motor)}


@pytest.mark.parametrize("cls", [Motor, Colour, pytest.Config.InvocationParams])
def test_a_class_is_found_again_by_its_name(cls: type[Any]) -> None:
    assert class_at(name_of(cls)) is cls


def test_a_class_that_is_gone_is_an_error() -> None:
    with pytest.raises(ImportError):
        class_at("nowhere.at.All")
