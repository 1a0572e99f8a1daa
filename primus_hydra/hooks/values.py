"""What a hook hands on: variables for the ranks (`env.NAME`) and values for the record (`extra.a.b`).

Scripts say it in lines of their standard output, functions in the mapping that they return; both are read here, into
the same thing. Refused: names that belong to the launcher, text that an environment cannot hold, and a value below
another value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from primus_hydra.errors import Problem
from primus_hydra.runtime.reserved import is_reserved

ENV: Final = "env."
EXTRA: Final = "extra."

Scalar = str | int | float | bool | None

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
_LONGEST = 131_072
"""Bytes of one variable with its name and its end, see MAX_ARG_STRLEN in execve(2): more, and no rank could start."""


@dataclass(frozen=True, kw_only=True)
class HookVariable:
    """A variable for the ranks, and the hook that set it."""

    name: str
    value: str
    hook: str


@dataclass(frozen=True, kw_only=True)
class HookValues:
    """Everything that hooks have set so far; `extra` is a tree of plain values."""

    variables: tuple[HookVariable, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables as a process gets them."""
        return {variable.name: variable.value for variable in self.variables}

    def merged(self, later: HookValues) -> HookValues:
        """Return both; what was set later wins."""
        known = {variable.name: variable for variable in (*self.variables, *later.variables)}
        return HookValues(variables=tuple(known.values()), extra=_merged(self.extra, later.extra))

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        variables = {variable.name: {"value": variable.value, "hook": variable.hook} for variable in self.variables}
        return {"variables": variables, "extra": dict(self.extra)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HookValues:
        """Read what `to_json` wrote."""
        variables = (HookVariable(name=name, **said) for name, said in data["variables"].items())
        return cls(variables=tuple(variables), extra=data["extra"])


class Collector:
    """Gathers what one hook says, and what is wrong with it."""

    def __init__(self, hook: str) -> None:
        self._hook = hook
        self._variables: dict[str, HookVariable] = {}
        self._extra: dict[str, Any] = {}
        self.problems: list[Problem] = []

    @property
    def values(self) -> HookValues:
        """What was said so far."""
        return HookValues(variables=tuple(self._variables.values()), extra=self._extra)

    def line(self, raw: bytes) -> bool:
        """Take a line of a script's output, without its line feed; False if it is none of ours."""
        name, sign, value = raw.partition(b"=")
        if not sign or not name.startswith((ENV.encode(), EXTRA.encode())):
            return False
        try:
            key, text = name.decode(), value.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            self._wrong(name.decode(errors="replace"), "it is not UTF-8 text")
            return True
        self.add(key, text if key.startswith(ENV) else scalar(text))
        return True

    def mapping(self, returned: object) -> None:
        """Take what a function returned."""
        if returned is None:
            return
        if not isinstance(returned, Mapping):
            self._wrong(None, f"it returned a {type(returned).__name__}, expected a mapping or None")
            return
        for key, value in returned.items():
            self.add(str(key), value)

    def add(self, key: str, value: object) -> None:
        """Take one value under its whole name."""
        if key.startswith(ENV):
            self._add_variable(key.removeprefix(ENV), value)
        elif key.startswith(EXTRA):
            self._add_extra(key.removeprefix(EXTRA), value)
        else:
            self._wrong(key, f"names begin with {ENV} or {EXTRA}")

    def _add_variable(self, name: str, value: object) -> None:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        fault = _variable_fault(name, text)
        if fault is not None or not isinstance(text, str):
            self._wrong(f"{ENV}{name}", fault or "the value is no text")
            return
        self._variables[name] = HookVariable(name=name, value=text, hook=self._hook)

    def _add_extra(self, path: str, value: object) -> None:
        key = f"{EXTRA}{path}"
        if _PATH.fullmatch(path) is None:
            self._wrong(key, "the name must be words of letters, digits, _ and - with dots between them")
        elif not _is_plain(value):
            self._wrong(key, "the value must be text, a finite number, true, false or null")
        elif not _put(self._extra, path.split("."), value):
            self._wrong(key, "a value has this name already, and another stands below it or above it")

    def _wrong(self, key: str | None, what: str) -> None:
        self.problems.append(Problem(key=key, what=what, where=f"the hook {self._hook}"))


def scalar(text: str) -> Scalar:
    """Read text as YAML does in a configuration file; what is no scalar of JSON (a list, a date) stays text."""
    # Only here: the process of a function prints nothing that is read, and these cost it a third of its start.
    import yaml
    from omegaconf._utils import get_yaml_loader

    try:
        value = yaml.load(text, Loader=get_yaml_loader())  # a safe loader, with floats without a point
    except (yaml.YAMLError, ValueError):
        return text
    return value if _is_plain(value) else text


def _variable_fault(name: str, text: object) -> str | None:
    if _NAME.fullmatch(name) is None:
        return "this is no name of an environment variable"
    if is_reserved(name):
        return "this variable is set by the launcher"
    if not isinstance(text, str):
        return f"the value must be text, not a {type(text).__name__}"
    if "\0" in text:
        return "the value holds a zero byte"
    if not _is_unicode(text):
        return "the value is not Unicode text"
    size = len(name) + len(text.encode()) + 2
    return None if size <= _LONGEST else f"{size} bytes do not fit in one variable ({_LONGEST} do)"


def _is_plain(value: object) -> TypeGuard[Scalar]:
    """Whether strict JSON holds a value."""
    if isinstance(value, str):
        return _is_unicode(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, int)


def _is_unicode(text: str) -> bool:
    """Whether text has no stray halves of letters, as file names that are no UTF-8 have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _put(tree: dict[str, Any], path: list[str], value: Scalar) -> bool:
    """Put a value in a tree; False if a value stands where a node is needed, or a node where the value would be."""
    *parents, leaf = path
    for parent in parents:
        below = tree.setdefault(parent, {})
        if not isinstance(below, dict):
            return False
        tree = below
    if isinstance(tree.get(leaf), dict):
        return False
    tree[leaf] = value
    return True


def _merged(before: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(before)
    for name, value in later.items():
        old = merged.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[name] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged
