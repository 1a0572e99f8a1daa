"""Check native keys (`backend.config.*`) against described classes: names, types, choices and `_target_`.

Works on descriptions alone, so the parent uses it with the data file of a version and a rank uses it with the real
classes. Every problem is gathered; nothing is raised and nothing is converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from primus_hydra.config.build import describe
from primus_hydra.config.suggest import nearest, renamed
from primus_hydra.errors import PrimusError, Problem
from primus_hydra.native.describe import Node, only_code

PREFIX = "backend.config"
TARGET = "_target_"
DTYPES = (
    *("float32", "bfloat16", "float16", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("uint8", "int8", "int16", "int32", "int64"),
)
"""Names of torch's dtypes, the usual ones first; `torch.` may stand before each."""
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "null": "null",
    "dtype": "a dtype such as float32 or bfloat16",
    "dict": "a group of keys",
}
_OF_MANY = {"int": " of whole numbers", "float": " of numbers", "str": " of texts", "list": " of lists"}
_CLOSE = 0.8
"""How alike a key of this place must be to be named before the same key of another place."""
_MANY = 40
"""More keys than anyone reads in a message."""


class Catalog(Protocol):
    """Knows classes by import path."""

    def find(self, name: str) -> Mapping[str, Any] | None:
        """Return the description of a class, None if it is not known here; raises PrimusError if it is not allowed."""


@dataclass(kw_only=True)
class Checker:
    """Walks a tree of native keys; `placed` gives the class that sits at each path before the user's keys.

    `backend` is its name in messages. `keep` names paths whose implementation may be replaced only by one that derives
    from the placed one; `owners` gives the key that a hint names instead of a native one.
    """

    backend: str
    catalog: Catalog
    placed: Mapping[str, str | None]
    keep: frozenset[str] = frozenset()
    owners: Mapping[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def check(self, tree: Any) -> list[Problem]:
        """Check the whole tree below backend.config."""
        self._object({"type": "object", "class": self.placed[""]}, tree, "")
        return self.problems

    def wrong(self, path: str, what: str, hint: str | None = None) -> None:
        """Note a problem at a path below backend.config."""
        self.problems.append(Problem(key=f"{PREFIX}.{path}" if path else PREFIX, what=what, hint=hint))

    def _object(self, node: Node, tree: Any, path: str) -> None:
        if not isinstance(tree, Mapping):
            return self.wrong(path, f"expects a group of keys, not {describe(tree)}")
        present = self._present(node, path)
        name = self._target([node["class"]], tree[TARGET], path) if TARGET in tree else present or node["class"]
        return self._body(name, tree, path, complete=present is not None) if name else None

    def _body(self, name: str, tree: Mapping[str, Any], path: str, *, complete: bool) -> None:
        info = self._find(name, path)
        if info is None:
            return
        fields: Mapping[str, Node] = info["fields"]
        for key, value in tree.items():
            if key != TARGET:
                self._field(name, fields, str(key), value, path)
        # An object that sits here already lends its values, also to another class that takes its place.
        for key in (
            [] if complete else [key for key, node in fields.items() if node.get("required") and key not in tree]
        ):
            self.wrong(_join(path, key), f"{name} needs a value here")

    def _present(self, node: Node, path: str) -> str | None:
        default = node.get("default")
        return self.placed.get(path) or (default.get(TARGET) if isinstance(default, Mapping) else None)

    def _field(self, name: str, fields: Mapping[str, Node], key: str, value: Any, path: str) -> None:
        here = _join(path, key)
        if key not in fields:
            return self.wrong(here, f"{self.backend} has no such key here", self._hint(name, key, fields, path))
        return self._value(fields[key], value, here)

    def _hint(self, owner: str, key: str, fields: Mapping[str, Node], path: str) -> str | None:
        close = [_join(path, name) for name in nearest(key, fields, cutoff=_CLOSE)]
        near = close or self._elsewhere(key)
        if not near and (known := renamed(key)):
            return known
        near = near or [_join(path, name) for name in nearest(key, fields)]
        if near:
            names = dict.fromkeys(self.owners.get(name, f"{PREFIX}.{name}") for name in near)
            return f"did you mean {' or '.join(names)}?"
        settable = [
            name for name, node in fields.items() if not only_code(node) and _join(path, name) not in self.owners
        ]
        if len(settable) > _MANY:
            return f"the keys here are the fields of {owner}"
        return f"keys here: {', '.join(settable)}" if settable else "nothing can be set here"

    def _elsewhere(self, key: str) -> list[str]:
        places = []
        for path, name in self.placed.items():
            info = self._find(name, path) if name else None
            if info and key in info["fields"]:
                places.append(_join(path, key))
        return places[:3]

    def _value(self, node: Node, value: Any, path: str) -> None:
        kind = node["type"]
        if only_code(node):
            self.wrong(path, "can only be set by code")
        elif kind == "object":
            self._object(node, value, path)
        elif kind == "union":
            self._union(node["any_of"], value, path)
        elif kind in ("list", "tuple"):
            self._items(node, value, path)
        elif kind == "dict":
            self._dict(node, value, path)
        elif (error := scalar_error(node, value)) is not None:
            self.wrong(path, *error)

    def _union(self, members: Sequence[Node], value: Any, path: str) -> None:
        if isinstance(value, Mapping) and any(member["type"] == "object" for member in members):
            return self._union_object([member for member in members if member["type"] == "object"], value, path)
        if any(self._fits(member, value, path) for member in members):
            return None
        words = " or ".join(dict.fromkeys(_words(member) for member in members if not only_code(member)))
        return self.wrong(path, f"expects {words}, not {describe(value)}", scalar_hint(members, value))

    def _union_object(self, members: Sequence[Node], value: Mapping[str, Any], path: str) -> None:
        classes = [member["class"] for member in members]
        present = self.placed.get(path)
        only = classes[0] if len(classes) == 1 else None
        name = self._target(classes, value[TARGET], path) if TARGET in value else present or only
        if name:
            self._body(name, value, path, complete=present is not None)
        elif TARGET not in value:
            self.wrong(path, "nothing sits here", f"choose with {PREFIX}.{path}.{TARGET}={' or '.join(classes)}")

    def _fits(self, node: Node, value: Any, path: str) -> bool:
        probe = Checker(backend=self.backend, catalog=self.catalog, placed=self.placed, keep=self.keep)
        probe._value(node, value, path)
        return not probe.problems

    def _items(self, node: Node, value: Any, path: str) -> None:
        if not isinstance(value, (list, tuple)):
            return self.wrong(path, f"expects a list, not {describe(value)}")
        items = node["items"]
        if isinstance(items, list) and len(items) != len(value):
            return self.wrong(path, f"expects {len(items)} items, not {len(value)}")
        for index, item in enumerate(value):
            self._value(items[index] if isinstance(items, list) else items, item, f"{path}[{index}]")
        return None

    def _dict(self, node: Node, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            return self.wrong(path, f"expects a group of keys, not {describe(value)}")
        for key, item in value.items():
            self._value(node["values"], item, _join(path, str(key)))
        return None

    def _target(self, wanted: Sequence[str], target: Any, path: str) -> str | None:
        here = _join(path, TARGET)
        if not isinstance(target, str):
            self.wrong(here, f"expects the import path of a class, not {describe(target)}")
            return None
        info = self._find(target, here)
        if info is None:
            return None
        needed = [str(self.placed[path])] if path in self.keep else list(wanted)
        if not set(needed) & set(info["is_a"]):
            self.wrong(here, f"{target} is not a {' or '.join(needed)}", "derive your class from it")
            return None
        return target

    def _find(self, name: str, path: str) -> Mapping[str, Any] | None:
        try:
            return self.catalog.find(name)
        except PrimusError as error:
            for problem in error.problems:
                self.wrong(path, problem.what, problem.hint)
            return None


def scalar_error(node: Node, value: Any) -> tuple[str, str | None] | None:
    """Say how a value does not fit a scalar node (and a hint), or None if it fits."""
    kind = node["type"]
    if kind == "any" or (kind in ("choice", "enum") and _chosen(value, node["choices"])):
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        "bool": isinstance(value, bool),
        "int": number and isinstance(value, int),
        "float": number,
        "str": isinstance(value, str),
        "null": value is None,
        "dtype": isinstance(value, str) and value.removeprefix("torch.") in DTYPES,
    }.get(kind, False)
    return None if fits else (f"expects {_words(node)}, not {describe(value)}", scalar_hint([node], value))


def scalar_hint(nodes: Sequence[Node], value: Any) -> str | None:
    """Suggest the nearest choice of any of the nodes."""
    choices = [str(choice) for node in nodes for choice in choices_of(node)]
    near = nearest(str(value), choices)
    return f"did you mean {near[0]}?" if near else None


def choices_of(node: Node) -> Sequence[Any]:
    """Return what may be chosen, where a node has choices."""
    return DTYPES if node["type"] == "dtype" else node.get("choices", ())


def _chosen(value: Any, choices: Sequence[Any]) -> bool:
    return any(value == choice and type(value) is type(choice) for choice in choices)


def _words(node: Node) -> str:
    if node["type"] in ("choice", "enum"):
        return f"one of {', '.join(str(choice) for choice in node['choices'])}"
    if node["type"] == "object":
        return f"a {node['class']}"
    return _list_words(node["items"]) if node["type"] in ("list", "tuple") else _WORDS[node["type"]]


def _list_words(items: Node | Sequence[Node]) -> str:
    if not isinstance(items, Mapping):
        return f"a list of {len(items)} items"
    return f"a list{_OF_MANY.get(items['type'], '')}"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
