"""Lay native keys (`backend.config.*`) over a built configuration object, strictly; works on any dataclasses.

Which implementation sits in a field is which class sits there: `_target_` names it. A class that takes the place of
another one takes over the values of the fields that both have. Each object is built anew, so its own checks run again.
Refuses unknown keys, wrong types, and classes from packages that are not allowed; all problems are returned at once.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from primus_hydra.backends.torchtitan.describe import classes_below, describe_class, name_of
from primus_hydra.backends.torchtitan.native_check import PREFIX, TARGET, Checker
from primus_hydra.backends.torchtitan.targets import load_config_class
from primus_hydra.errors import Problem

C = TypeVar("C")


class LiveCatalog:
    """Describes classes that can be imported; `known` ones need no import and no permission."""

    def __init__(self, known: Mapping[str, type[Any]]) -> None:
        self._known = known

    def find(self, name: str) -> Mapping[str, Any]:
        """Return the description of a class; raises UserError if there is none of this name that may be used."""
        return describe_class(self.load(name))

    def load(self, name: str) -> type[Any]:
        """Return a configuration class; raises UserError if there is none of this name that may be used."""
        return self._known.get(name) or load_config_class(name)


def overlay(
    config: C, tree: Mapping[str, Any], *, keep: frozenset[str] = frozenset()
) -> tuple[C | None, list[Problem]]:
    """Return `config` with the keys of `tree` laid over it, or None and every problem found.

    `keep` names paths whose class may be replaced only by one that derives from it.
    """
    if not tree:
        return config, []
    known = classes_below(config)
    catalog = LiveCatalog({name_of(cls): cls for cls in known.values()})
    placed = {path: name_of(cls) for path, cls in known.items()}
    problems = Checker(catalog=catalog, placed=placed, keep=keep).check(tree)
    if problems:
        return None, problems
    builder = _Builder(catalog)
    result = builder.object(type(config), config, tree, "")
    return (None, builder.problems) if builder.problems else (typing.cast(C, result), [])


class _Builder:
    """Builds checked values; what a class itself refuses becomes a problem at its path."""

    def __init__(self, catalog: LiveCatalog) -> None:
        self._catalog = catalog
        self.problems: list[Problem] = []

    def object(self, cls: type[Any], present: Any, tree: Mapping[str, Any], path: str) -> Any:
        cls = self._catalog.load(tree[TARGET]) if TARGET in tree else cls
        hints = typing.get_type_hints(cls)
        values = _shared_values(cls, present)
        for key, raw in tree.items():
            if key != TARGET:
                here = f"{path}.{key}" if path else key
                present_value = values[key] if key in values else _default_of(cls, key)
                values[key] = self.value(hints[key], present_value, raw, here)
        try:
            return cls(**values)
        except Exception as error:  # whatever a class raises about its values is the user's to mend
            key = f"{PREFIX}.{path}" if path else PREFIX
            self.problems.append(Problem(key=key, what=f"torchtitan refuses these values: {error}"))
            return present

    def value(self, hint: Any, present: Any, raw: Any, path: str) -> Any:
        origin, args = get_origin(hint), get_args(hint)
        if isinstance(raw, Mapping) and _is_object(present, hint):
            return self.object(_class_of(present, hint), present, raw, path)
        if origin in (typing.Union, types.UnionType):
            return self.value(_member(args, raw), present, raw, path)
        if isinstance(raw, (list, tuple)) and (tuple in (origin, hint) or list in (origin, hint)):
            items = [self.value(kind, None, item, f"{path}[{index}]") for index, (kind, item) in _items(args, raw)]
            return tuple(items) if tuple in (origin, hint) else items
        if isinstance(raw, Mapping):
            return {key: self.value(args[1] if args else Any, None, item, f"{path}.{key}") for key, item in raw.items()}
        return float(raw) if hint is float else raw


def _shared_values(cls: type[Any], present: Any) -> dict[str, Any]:
    if present is None:
        return {}
    names = {field.name for field in dataclasses.fields(present)}
    return {
        field.name: getattr(present, field.name)
        for field in dataclasses.fields(cls)
        if field.init and field.name in names
    }


def _default_of(cls: type[Any], key: str) -> Any:
    field = next(field for field in dataclasses.fields(cls) if field.name == key)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _is_object(present: Any, hint: Any) -> bool:
    return dataclasses.is_dataclass(present) or any(dataclasses.is_dataclass(kind) for kind in (hint, *get_args(hint)))


def _class_of(present: Any, hint: Any) -> type[Any]:
    if dataclasses.is_dataclass(present):
        return typing.cast(type[Any], type(present))
    return next(kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and dataclasses.is_dataclass(kind))


def _member(kinds: Sequence[Any], raw: Any) -> Any:
    """Return the member of a union that a checked value belongs to."""
    if raw is None:
        return type(None)
    exact = [kind for kind in kinds if (get_origin(kind) or kind) is type(raw)]
    sequences = [
        kind for kind in kinds if isinstance(raw, (list, tuple)) and (get_origin(kind) or kind) in (list, tuple)
    ]
    return (exact or sequences or [kind for kind in kinds if kind is not type(None)])[0]


def _items(args: tuple[Any, ...], raw: Sequence[Any]) -> list[tuple[int, tuple[Any, Any]]]:
    kinds = list(args) if args and args[-1] is not Ellipsis else [args[0]] if args else [Any]
    if len(kinds) != len(raw):
        kinds = [kinds[0]] * len(raw)
    return list(enumerate(zip(kinds, raw, strict=True)))
