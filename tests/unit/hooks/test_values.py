"""What hooks may set, in lines and mappings, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from primus_hydra.hooks.values import Collector, HookValues, HookVariable, scalar


def collected(*lines: bytes) -> Collector:
    collector = Collector("prepare")
    for line in lines:
        assert collector.line(line)
    return collector


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (b"env.A=1", "A", "1"),
        (b"env.A=", "A", ""),
        (b"env.A=x=y", "A", "x=y"),
        (b"env.A= two  words ", "A", " two  words "),
        (b"env.A='$HOME' \"`id`\" $(id)", "A", "'$HOME' \"`id`\" $(id)"),
        ("env.A=日本語".encode(), "A", "日本語"),
        (b"env.A=1\r", "A", "1"),
        (b"env._b2=-x", "_b2", "-x"),
    ],
)
def test_a_variable_arrives_as_it_was_printed(line, name, value):
    collector = collected(line)
    assert collector.problems == []
    assert collector.values.environment == {name: value}
    assert collector.values.variables[0].hook == "prepare"


@pytest.mark.parametrize(
    "line", [b"hello", b"", b" env.A=1", b"+ env.A=1", b"ENV.A=1", b"env.yaml is missing", b"the env.A=1", b"extra"]
)
def test_any_other_line_is_only_text(line):
    assert not Collector("prepare").line(line)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"env.=1", "no name of an environment variable"),
        (b"env.MY-KEY=1", "no name of an environment variable"),
        (b"env.1A=1", "no name of an environment variable"),
        (b"env.RANK=0", "set by the launcher"),
        (b"env.PRIMUS_RUN_DIR=/x", "set by the launcher"),
        (b"env.PRIMUS_HOOK_NAME=x", "set by the launcher"),
        (b"env.A=\xff", "not UTF-8"),
        (b"env.A=\0", "zero byte"),
        (b"env.A=" + b"x" * 131_072, "do not fit"),
        (b"extra.=1", "words of letters"),
        (b"extra.a..b=1", "words of letters"),
    ],
)
def test_a_line_that_sets_what_cannot_be_set_is_a_problem_with_the_hook_s_name(line, what):
    collector = collected(line)
    assert collector.values == HookValues()
    assert what in collector.problems[0].what
    assert "prepare" in str(collector.problems[0])


def test_the_longest_variable_that_a_process_can_be_given_is_taken():
    assert collected(b"env.A=" + b"x" * (131_072 - len("A=") - 1)).problems == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("1e-5", 1e-5),
        ("true", True),
        ("null", None),
        ("", None),
        ("text", "text"),
        ("'12'", "12"),
        ("[1, 2]", "[1, 2]"),
        ("a: b", "a: b"),
        ("2024-10-01", "2024-10-01"),
        (".nan", ".nan"),
        ("{", "{"),
        ("!!python/object:os.system x", "!!python/object:os.system x"),
    ],
)
def test_extra_values_are_read_as_yaml_scalars(text: str, value: object):
    read = scalar(text)
    assert read == value
    assert type(read) is type(value)


def test_extra_values_make_a_tree():
    collector = collected(b"extra.data.rows=1", b"extra.data.files=2", b"extra.data.rows=3", b"extra.note=x y")
    assert collector.problems == []
    assert collector.values.extra == {"data": {"rows": 3, "files": 2}, "note": "x y"}


@pytest.mark.parametrize("lines", [(b"extra.a=1", b"extra.a.b=2"), (b"extra.a.b=2", b"extra.a=1")])
def test_a_value_below_a_value_is_a_problem(lines):
    assert len(collected(*lines).problems) == 1


@pytest.mark.parametrize(
    ("returned", "environment", "extra"),
    [
        (None, {}, {}),
        ({}, {}, {}),
        ({"env.A": "1", "env.B": 2, "extra.x.y": 0.5}, {"A": "1", "B": "2"}, {"x": {"y": 0.5}}),
    ],
)
def test_a_function_returns_the_same_two_kinds(returned, environment, extra):
    collector = Collector("prepare")
    collector.mapping(returned)
    assert collector.problems == []
    assert (collector.values.environment, collector.values.extra) == (environment, extra)


@pytest.mark.parametrize(
    "returned",
    [3, "env.A=1", {"A": "1"}, {"env.A": True}, {"env.A": None}, {"env.A": 0.5}, {"extra.a": [1]}, {"env.A": "\udcff"}],
)
def test_a_function_that_returns_anything_else_is_a_problem(returned: Any):
    collector = Collector("prepare")
    collector.mapping(returned)
    assert len(collector.problems) == 1
    assert collector.values == HookValues()


def test_later_values_win_and_survive_json():
    first = HookValues(variables=(HookVariable(name="A", value="1", hook="a"),), extra={"x": {"a": 1, "b": 2}})
    later = HookValues(variables=(HookVariable(name="A", value="2", hook="b"),), extra={"x": {"b": 3}})
    both = first.merged(later)
    assert both.variables == later.variables
    assert both.extra == {"x": {"a": 1, "b": 3}}
    assert HookValues.from_json(json.loads(json.dumps(both.to_json()))) == both
