"""From arguments by name to a command line for upstream's parser.

Refuses what a command line cannot say: null where upstream has another default, and a switch without the flag for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_hydra.backends.megatron.training.describe import Arguments
from primus_hydra.errors import Problem
from primus_hydra.native.check import PREFIX
from primus_hydra.native.describe import Node


def command_line(values: Mapping[str, Any], arguments: Arguments) -> list[str]:
    """Return the flags that set `values`; a value equal to upstream's default needs none."""
    words: list[str] = []
    for name, value in values.items():
        words += _flags(arguments[name], value)
    return words


def unsayable(values: Mapping[str, Any], arguments: Arguments) -> list[Problem]:
    """Return a problem for each value of the right type that no flag sets."""
    problems = []
    for name, value in values.items():
        node = arguments.get(name)
        if node is not None and not _says(node, value):
            what = (
                f"megatron.training has no flag that sets it to {str(value).lower() if value is not None else 'null'}"
            )
            hint = f"leave it out: it is {node['default']} already" if value is None else None
            problems.append(Problem(key=f"{PREFIX}.{name}", what=what, hint=hint))
    return problems


def _says(node: Node, value: Any) -> bool:
    if value == node["default"] and type(value) is type(node["default"]):
        return True
    if value is None or value == []:
        return False
    return not isinstance(value, bool) or _switch(value) in node


def _switch(value: bool) -> str:
    return "set" if value else "clear"


def _flags(node: Node, value: Any) -> list[str]:
    if value == node["default"] and type(value) is type(node["default"]):
        return []
    if isinstance(value, bool):
        # A switch whose default is None is off already.
        return [node[_switch(value)]] if _switch(value) in node else []
    if isinstance(value, (list, tuple)):
        return [node["set"], *map(str, value)]
    return [f"{node['set']}={value}"]
