"""Describe a backend's configuration classes as plain data, so that keys can be checked without the backend.

A class description names the dataclasses it derives from and gives each field a node: its type, choices and default.
A torch dtype and a member of an enum are named by text; what no text can say (a callable, a model, a private field)
becomes the type `code`, which no configuration may set.
Imports no torch itself: it looks at classes that the caller has imported.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

Node = dict[str, Any]
"""One type: {"type": ..., and "choices", "items", "values", "any_of" or "class" as the type needs}."""
_SCALARS: dict[Any, str] = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null", Any: "any"}


def name_of(cls: type) -> str:
    """Return the import path of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def class_at(name: str) -> type[Any]:
    """Import the class at a path that `name_of` gave; raises ImportError or AttributeError if it is not there."""
    module, _, attribute = name.rpartition(".")
    while True:
        try:
            found: Any = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, part = module.rpartition(".")
            if not module:
                raise
            attribute = f"{part}.{attribute}"
    for part in attribute.split("."):
        found = getattr(found, part)
    return typing.cast("type[Any]", found)


def describe_class(cls: type[Any]) -> dict[str, Any]:
    """Describe a dataclass: {"is_a": names of its dataclass bases, "fields": {name: node with default}}."""
    hints = typing.get_type_hints(cls, include_extras=False)
    fields = {field.name: _describe_field(field, hints[field.name]) for field in dataclasses.fields(cls) if field.init}
    bases = [name_of(base) for base in cls.__mro__ if dataclasses.is_dataclass(base)]
    return {"is_a": bases, "fields": fields}


def describe_type(hint: Any) -> Node:
    """Describe one type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return describe_type(args[0])
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin is Literal:
        return {"type": "choice", "choices": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"type": "union", "any_of": [describe_type(arg) for arg in args]}
    if list in (origin, hint):
        return {"type": "list", "items": describe_type(args[0]) if args else {"type": "any"}}
    if tuple in (origin, hint):
        return _describe_tuple(args)
    if dict in (origin, hint):
        return {"type": "dict", "values": describe_type(args[1]) if args else {"type": "any"}}
    if is_dtype(hint):
        return {"type": "dtype"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"type": "enum", "choices": list(hint.__members__)}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and not _is_model_spec(hint):
        return {"type": "object", "class": name_of(hint)}
    return {"type": "code"}


def is_dtype(hint: Any) -> bool:
    """Whether a type is torch's dtype, told by its name."""
    return isinstance(hint, type) and (hint.__module__, hint.__qualname__) == ("torch", "dtype")


def only_code(node: Mapping[str, Any]) -> bool:
    """Whether no text can set a field of this node; null says nothing that the default does not."""
    members = [member for member in node.get("any_of", ()) if member["type"] != "null"]
    return node["type"] == "code" or (bool(members) and all(only_code(member) for member in members))


def classes_below(instance: Any) -> dict[str, type[Any]]:
    """Return the class that sits at each dotted path of a configuration object, the root at the empty path."""
    found: dict[str, type[Any]] = {"": type(instance)}
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if dataclasses.is_dataclass(value) and not _is_model_spec(type(value)):
            below = classes_below(value)
            found |= {f"{field.name}.{path}" if path else field.name: cls for path, cls in below.items()}
    return found


def mentioned(node: Mapping[str, Any]) -> set[str]:
    """Return the names of the classes that a node mentions."""
    names = {node["class"]} if node["type"] == "object" else set()
    for child in (*node.get("any_of", ()), *(node[key] for key in ("values",) if key in node)):
        names |= mentioned(child)
    items = node.get("items", [])
    for child in items if isinstance(items, list) else [items]:
        names |= mentioned(child)
    return names


def _describe_tuple(args: tuple[Any, ...]) -> Node:
    if not args:
        return {"type": "tuple", "items": {"type": "any"}}
    if args[-1] is Ellipsis:
        return {"type": "tuple", "items": describe_type(args[0])}
    return {"type": "tuple", "items": [describe_type(arg) for arg in args]}


def _describe_field(field: dataclasses.Field[Any], hint: Any) -> Node:
    node = {"type": "code"} if field.name.startswith("_") else describe_type(hint)
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return {**node, "required": True}
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is None and not _admits_null(node):  # a field that says `x: int = None` means it
        members = node.get("any_of", [node])
        node = {"type": "union", "any_of": [*members, {"type": "null"}]}
    return {**node, "default": _plain(value)}


def _admits_null(node: Node) -> bool:
    return node["type"] in ("null", "any", "code") or any(_admits_null(member) for member in node.get("any_of", ()))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"_target_": name_of(type(value))}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, enum.Enum):
        return value.name
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _is_model_spec(cls: type) -> bool:
    return cls.__name__ == "ModelSpec"
