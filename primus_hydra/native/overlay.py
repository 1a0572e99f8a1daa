"""Lay native keys (`backend.config.*`) over configuration objects, strictly; works on any dataclasses.

Which implementation sits in a field is which class sits there: `_target_` names it. A class that takes the place of
another one takes over the values of the fields that both have. Each object is built anew, so its own checks run again.
Refuses unknown keys, wrong types, and classes from packages that are not allowed; all problems are returned at once.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import traceback
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from primus_hydra.errors import Problem
from primus_hydra.native.catalog import LiveCatalog
from primus_hydra.native.check import PREFIX, TARGET, Checker
from primus_hydra.native.describe import classes_below, is_dtype, name_of
from primus_hydra.native.targets import Targets

C = TypeVar("C")


def overlay(
    config: C, tree: Mapping[str, Any], *, targets: Targets, keep: frozenset[str] = frozenset()
) -> tuple[C | None, list[Problem]]:
    """Return `config` with the keys of `tree` laid over it, or None and every problem found.

    `keep` names paths whose class may be replaced only by one that derives from it.
    """
    if not tree:
        return config, []
    known = classes_below(config)
    catalog = LiveCatalog({name_of(cls): cls for cls in known.values()}, targets)
    placed = {path: name_of(cls) for path, cls in known.items()}
    problems = Checker(backend=targets.backend, catalog=catalog, placed=placed, keep=keep).check(tree)
    if problems:
        return None, problems
    builder = Builder(targets.backend, catalog)
    result = builder.object(type(config), config, tree, "")
    return (None, builder.problems) if builder.problems else (typing.cast(C, result), [])


class Builder:
    """Builds objects from checked values; what a class itself refuses becomes a problem at its path."""

    def __init__(self, backend: str, catalog: LiveCatalog) -> None:
        self._backend = backend
        self._catalog = catalog
        self.problems: list[Problem] = []

    def object(self, cls: type[Any], present: Any, tree: Mapping[str, Any], path: str) -> Any:
        """Build `cls`, or the class that the tree names, from the values of `present` with the tree's over them.

        Returns `present` where the class refuses its values.
        """
        values = {} if present is None else {field.name: getattr(present, field.name) for field in _fields(present)}
        built = self.construct(cls, values, tree, path)
        return present if built is None else built

    def construct(self, cls: type[Any], values: Mapping[str, Any], tree: Mapping[str, Any], path: str) -> Any:
        """Build `cls`, or the class that the tree names, once: from those of `values` that it has, and the tree's.

        Returns None where the class refuses its values.
        """
        cls = self._catalog.load(tree[TARGET]) if TARGET in tree else cls
        names = {field.name for field in _fields(cls) if field.init}
        arguments = {name: value for name, value in values.items() if name in names}
        hints = typing.get_type_hints(cls)
        for key, raw in tree.items():
            if key != TARGET:
                here = f"{path}.{key}" if path else key
                present = arguments[key] if key in arguments else _default_of(cls, key)
                arguments[key] = self._value(hints[key], present, raw, here)
        try:
            return cls(**arguments)
        except Exception as error:  # whatever a class raises about its values is the user's to mend
            what = f"{self._backend} refuses these values: {_reason(error)}"
            self.problems.append(Problem(key=f"{PREFIX}.{path}" if path else PREFIX, what=what))
            return None

    def _value(self, hint: Any, present: Any, raw: Any, path: str) -> Any:
        origin, args = get_origin(hint), get_args(hint)
        if isinstance(raw, Mapping) and _is_object(present, hint):
            return self.object(_class_of(present, hint), present, raw, path)
        if origin in (typing.Union, types.UnionType):
            return self._value(_member(args, raw), present, raw, path)
        if isinstance(raw, (list, tuple)) and (tuple in (origin, hint) or list in (origin, hint)):
            items = [self._value(kind, None, item, f"{path}[{index}]") for index, (kind, item) in _items(args, raw)]
            return tuple(items) if tuple in (origin, hint) else items
        if isinstance(raw, Mapping):
            return {
                key: self._value(args[1] if args else Any, None, item, f"{path}.{key}") for key, item in raw.items()
            }
        return _scalar(hint, raw)


def _scalar(hint: Any, raw: Any) -> Any:
    if hint is float:
        return float(raw)
    if is_dtype(hint) and raw is not None:
        return getattr(sys.modules[hint.__module__], raw.removeprefix("torch."))
    if isinstance(hint, type) and issubclass(hint, enum.Enum) and raw is not None:
        return hint[raw]
    return raw


def _reason(error: Exception) -> str:
    """Say what a class refused; a bare assert says it only in its source."""
    if str(error) or not isinstance(error, AssertionError):
        return str(error) or type(error).__name__
    return traceback.extract_tb(error.__traceback__)[-1].line or type(error).__name__


def _fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


def _default_of(cls: type[Any], key: str) -> Any:
    field = next(field for field in _fields(cls) if field.name == key)
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
