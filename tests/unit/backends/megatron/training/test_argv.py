"""Values by name become a command line that the described parser reads back."""

from __future__ import annotations

import argparse
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.backends.megatron.training.argv import command_line, unsayable
from primus_hydra.backends.megatron.training.describe import describe_parser


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def pattern(text: str) -> int | str:
    return text if "[" in text else int(text)


def parser() -> argparse.ArgumentParser:
    """Every kind of argument that upstream's parser has."""
    made = argparse.ArgumentParser(allow_abbrev=False)
    made.add_argument("--count", type=int, default=3)
    made.add_argument("--rate", type=float, default=None)
    made.add_argument("--name", default=None)
    made.add_argument("--on", action="store_true")
    made.add_argument("--no-kept", action="store_false", dest="kept")
    made.add_argument("--maybe", action="store_true", default=None)
    made.add_argument("--both", action=argparse.BooleanOptionalAction, default=True)
    made.add_argument("--set-it", action="store_true", dest="two_flags", default=None)
    made.add_argument("--clear-it", action="store_false", dest="two_flags")
    made.add_argument("--kind", choices=["a", "b"], default="a")
    made.add_argument("--colour", type=Colour.__getitem__, choices=list(Colour), default=Colour.RED)
    made.add_argument("--sizes", type=int, nargs="+", default=None)
    made.add_argument("--ramp", type=int, nargs=3, default=None)
    made.add_argument("--pattern", type=pattern, default=1)
    return made


ARGUMENTS = describe_parser(parser())
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "count": st.integers(-9, 9),
        "rate": st.floats(-1e3, 1e3, allow_nan=False),
        "name": st.text("ab-= ", min_size=1),
        "on": st.booleans(),
        "kept": st.booleans(),
        "both": st.booleans(),
        "two_flags": st.booleans(),
        "kind": st.sampled_from("ab"),
        "sizes": st.lists(st.integers(0, 9), min_size=1, max_size=3),
        "ramp": st.lists(st.integers(0, 9), min_size=3, max_size=3),
    },
)


@given(VALUES)
def test_a_command_line_says_exactly_the_values(values: dict[str, Any]) -> None:
    assert unsayable(values, ARGUMENTS) == []
    read = vars(parser().parse_args(command_line(values, ARGUMENTS)))
    assert {name: read[name] for name in values} == values
    untouched = read.keys() - values.keys()
    defaults = vars(parser().parse_args([]))
    assert {name: read[name] for name in untouched} == {name: defaults[name] for name in untouched}


def test_members_of_enums_and_values_of_upstreams_own_types_are_said_by_name() -> None:
    line = command_line({"colour": "BLUE", "pattern": "[0,1]"}, ARGUMENTS)
    read = parser().parse_args(line)
    assert (read.colour, read.pattern) == (Colour.BLUE, "[0,1]")


def test_a_value_that_is_the_default_needs_no_word() -> None:
    assert command_line({"count": 3, "on": False, "kept": True, "maybe": False}, ARGUMENTS) == []


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [("count", None, "it is 3 already"), ("kept", None, "it is True already"), ("sizes", [], None)],
)
def test_what_no_flag_says_is_a_problem(name: str, value: object, hint: str | None) -> None:
    (problem,) = unsayable({name: value}, ARGUMENTS)
    assert problem.key == f"backend.config.{name}"
    assert "megatron.training has no flag that sets it" in problem.what
    assert hint is None or hint in (problem.hint or "")


def test_a_switch_without_its_opposite_cannot_be_turned_back() -> None:
    arguments = {"forced": {**ARGUMENTS["on"], "default": True}}
    (problem,) = unsayable({"forced": False}, arguments)
    assert "sets it to false" in problem.what
