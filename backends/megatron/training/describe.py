"""Describe upstream's argument parser as plain data: the type, choices and default of every argument, and its flags.

Each argument is one node as in `primus_hydra.native`, with what a command line needs beside: `set` is the flag that
carries a value (or switches on), `clear` the flag that switches off, `nargs` the number of values. An argument whose
values upstream reads with a function of its own takes text or a number here, and upstream's function judges it in the
rank. Imports no Megatron itself: it looks at a parser that the caller has made.
"""

from __future__ import annotations

import argparse
import enum
from collections.abc import Iterable, Mapping
from typing import Any

from primus_hydra.native.describe import Node

Arguments = dict[str, Node]
"""Argument (its `dest`, as upstream's own code names it) to its node."""
_SCALARS: dict[object, str] = {int: "int", float: "float", str: "str", None: "str"}


def describe_parser(parser: argparse.ArgumentParser) -> Arguments:
    """Describe every argument, in the order of the parser."""
    arguments: Arguments = {}
    defaults = vars(parser.parse_args([]))
    for group in parser._action_groups:
        for action in group._group_actions:
            if not isinstance(action, argparse._HelpAction):
                known = arguments.get(action.dest) or _describe(action, defaults[action.dest], group.title or "")
                arguments[action.dest] = known | _flags(action, known)
    return arguments


def _describe(action: argparse.Action, default: Any, group: str) -> Node:
    node = _node(action)
    if default is None:
        node = {"type": "union", "any_of": [node, {"type": "null"}]}
    values = {"nargs": action.nargs} if action.nargs else {}
    return {**node, "default": _plain(default), "group": group, **values}


def _node(action: argparse.Action) -> Node:
    if action.nargs == 0:
        return {"type": "bool"}
    value = _value(action)
    if action.nargs is None:
        return value
    several = _list(value, action.nargs)
    # One value stands for a list of one.
    return several if isinstance(action.nargs, int) else {"type": "union", "any_of": [several, value]}


def _list(value: Node, nargs: int | str) -> Node:
    return {"type": "list", "items": [value] * nargs if isinstance(nargs, int) else value}


def _value(action: argparse.Action) -> Node:
    if action.choices is not None:
        return {"type": "choice", "choices": [_plain(choice) for choice in action.choices]}
    if isinstance(action.type, type) or action.type is None:
        return {"type": _SCALARS.get(action.type, "str")}
    return {"type": "union", "any_of": [{"type": "str"}, {"type": "int"}]}


def _flags(action: argparse.Action, known: Mapping[str, Any]) -> dict[str, str]:
    flags = {name: str(known[name]) for name in ("set", "clear") if name in known}
    options = action.option_strings
    if isinstance(action, argparse.BooleanOptionalAction):
        return {**flags, "set": _first(options, negative=False), "clear": _first(options, negative=True)}
    return {**flags, "clear" if isinstance(action, argparse._StoreFalseAction) else "set": options[0]}


def _first(options: Iterable[str], *, negative: bool) -> str:
    return next(option for option in options if option.startswith("--no-") is negative)


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
