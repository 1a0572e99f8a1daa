"""Plain data to typed schema objects, and back; every problem is gathered, none is raised.

The validator of the composed tree. It knows types, `Literal` choices, bounds and unknown keys; what keys mean together
is checked elsewhere (`layout`, the backends).
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml

from primus_hydra.config.schema import REQUIRED, JobConfig, KeyInfo, info_of
from primus_hydra.config.suggest import nearest
from primus_hydra.errors import Problem, UserError

T = TypeVar("T")
_BAD: Any = object()
_hints: dict[type[Any], dict[str, Any]] = {}


def hints_of(schema: type[Any]) -> dict[str, Any]:
    """Return the resolved type of each field of a schema dataclass."""
    if schema not in _hints:
        _hints[schema] = typing.get_type_hints(schema)
    return _hints[schema]


def defaults_of(schema: type[Any]) -> dict[str, Any]:
    """Return the schema's defaults as plain data; required keys appear as None."""
    return {field.name: _plain_default(field) for field in dataclasses.fields(schema)}


def build(schema: type[T], tree: Mapping[str, Any], *, prefix: str = "") -> tuple[T | None, list[Problem]]:
    """Build `schema` from plain data; return the object, or None with every problem found."""
    builder = _Builder()
    result = builder.node(schema, tree, prefix)
    return (None, builder.problems) if builder.problems else (result, [])


def build_job(tree: Mapping[str, Any]) -> tuple[JobConfig | None, list[Problem]]:
    """Build the whole job from the composed and resolved tree."""
    return build(JobConfig, tree)


def load_job(path: Path) -> JobConfig:
    """Read a resolved configuration as a rank does; raises UserError if the file is not one."""
    tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_ExactLoader)
    job, problems = build_job(tree if isinstance(tree, dict) else {})
    if job is None:
        raise UserError(*problems)
    return job


def dump_job(job: JobConfig) -> str:
    """Write a resolved configuration so that `load_job` reads the same values."""
    return yaml.safe_dump(to_tree(job), sort_keys=False, allow_unicode=True, width=1_000_000)


def to_tree(value: Any) -> Any:
    """Return a schema object as plain dicts, lists and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_tree(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: to_tree(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_tree(item) for item in value]
    return None if value is REQUIRED else value


def schema_keys(schema: type[Any], prefix: str = "") -> dict[str, tuple[Any, KeyInfo]]:
    """Return every leaf key below a schema with its type and what is known of it; free-form dicts count as leaves."""
    keys: dict[str, tuple[Any, KeyInfo]] = {}
    for field in dataclasses.fields(schema):
        kind = hints_of(schema)[field.name]
        path = f"{prefix}.{field.name}" if prefix else field.name
        if dataclasses.is_dataclass(kind):
            keys.update(schema_keys(typing.cast(type[Any], kind), path))
        else:
            keys[path] = (kind, info_of(field))
    return keys


class _ExactLoader(yaml.SafeLoader):
    """The loader for files that `dump_job` wrote: plain YAML 1.1, as the dumper quotes for it."""


def _plain_default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return to_tree(field.default_factory())
    return to_tree(field.default)


class _Builder:
    """Walks schema and data together and keeps a list of what is wrong."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def wrong(self, path: str, what: str, hint: str | None = None) -> Any:
        self.problems.append(Problem(key=path, what=what, hint=hint))
        return _BAD

    def node(self, schema: type[T], tree: Any, path: str) -> T:
        if not isinstance(tree, Mapping):
            return typing.cast(T, self.wrong(path, f"expects a group of keys, not {describe(tree)}"))
        fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, schema))}
        for name in tree:
            if name not in fields:
                self.unknown(f"{path}.{name}" if path else str(name), str(name), list(fields))
        values: dict[str, Any] = {}
        for name, field in fields.items():
            here = f"{path}.{name}" if path else name
            raw = tree[name] if name in tree else _plain_default(field)
            values[name] = self.field(field, hints_of(schema)[name], raw, here)
        return schema(**values)

    def field(self, field: dataclasses.Field[Any], kind: Any, raw: Any, path: str) -> Any:
        if raw is None and field.default is REQUIRED:
            return self.wrong(path, "needs a value", f"choose one: {path.split('.')[0]}=..., or set {path}=...")
        value = self.value(kind, raw, path)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            error = info_of(field).bound_error(value)
            if error:
                unit = info_of(field).unit
                return self.wrong(path, f"{error}{f' {unit}' if unit else ''}, not {value!r}")
        return value

    def unknown(self, path: str, name: str, siblings: list[str]) -> None:
        near = nearest(name, siblings)
        if not near:
            leaves = schema_keys(JobConfig)
            near = [key for key in leaves if key.rsplit(".", 1)[-1] == name][:3] or nearest(path, leaves, cutoff=0.7)
        hint = f"did you mean {' or '.join(near)}?" if near else f"keys here: {', '.join(siblings)}"
        self.wrong(path, "there is no such key", hint)

    def value(self, kind: Any, raw: Any, path: str) -> Any:
        if dataclasses.is_dataclass(kind):
            return self.node(typing.cast(type[Any], kind), raw, path)
        attempt = convert(kind, raw)
        if isinstance(attempt, Mismatch):
            return self.wrong(path, attempt.what, attempt.hint)
        return attempt


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """Why a value does not fit a type."""

    what: str
    hint: str | None = None


def convert(kind: Any, raw: Any) -> Any:
    """Convert plain data to a type of the schema, or return a `Mismatch`."""
    if kind is Any:
        return raw
    origin = get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(get_args(kind), raw)
    if origin is Literal:
        return _convert_literal(get_args(kind), raw)
    if origin is list:
        return _convert_list(get_args(kind)[0], raw)
    if origin is dict:
        return _convert_dict(get_args(kind)[1], raw)
    return _convert_scalar(kind, raw)


def _convert_union(kinds: tuple[Any, ...], raw: Any) -> Any:
    if raw is None and type(None) in kinds:
        return None
    tries = [convert(kind, raw) for kind in kinds if kind is not type(None)]
    good = [value for value in tries if not isinstance(value, Mismatch)]
    exact = [value for value in good if type(value) is type(raw)]
    if good:
        return (exact or good)[0]
    return Mismatch(" or ".join(_without_tail(miss.what) for miss in tries) + f", not {describe(raw)}", tries[-1].hint)


def _without_tail(what: str) -> str:
    return what.rsplit(", not ", 1)[0]


def _convert_literal(choices: tuple[Any, ...], raw: Any) -> Any:
    for choice in choices:
        if raw == choice and type(raw) is type(choice):
            return choice
    near = nearest(str(raw), [str(choice) for choice in choices])
    listed = ", ".join(str(choice) for choice in choices)
    return Mismatch(f"expects one of {listed}, not {describe(raw)}", f"did you mean {near[0]}?" if near else None)


def _convert_list(kind: Any, raw: Any) -> Any:
    if not isinstance(raw, (list, tuple)):
        return Mismatch(
            f"expects a list, not {describe(raw)}", f"write [{raw}]" if isinstance(raw, (str, int, float)) else None
        )
    items = [convert(kind, item) for item in raw]
    return next((item for item in items if isinstance(item, Mismatch)), items)


def _convert_dict(kind: Any, raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return Mismatch(f"expects a group of keys, not {describe(raw)}")
    items = {str(name): convert(kind, item) for name, item in raw.items()}
    for name, item in items.items():
        if isinstance(item, Mismatch):
            return Mismatch(f"{name}: {item.what}", item.hint)
    return items


def _convert_scalar(kind: Any, raw: Any) -> Any:
    if kind is bool:
        return raw if isinstance(raw, bool) else Mismatch(f"expects true or false, not {describe(raw)}")
    if kind is int:
        return _convert_int(raw)
    if kind is float:
        return _convert_float(raw)
    if kind is str:
        return raw if isinstance(raw, str) else _text_of(raw)
    raise TypeError(f"the schema uses a type that the validator does not know: {kind!r}")


def _convert_int(raw: Any) -> Any:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, float) and raw.is_integer():
        return Mismatch(f"expects a whole number, not {describe(raw)}", f"write {int(raw)}")
    return Mismatch(f"expects a whole number, not {describe(raw)}")


def _convert_float(raw: Any) -> Any:
    if isinstance(raw, str):
        try:
            raw = float(raw)
        except ValueError:
            return Mismatch(f"expects a number, not {describe(raw)}")
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return Mismatch(f"expects a number, not {describe(raw)}")
    return Mismatch(f"expects a finite number, not {raw}") if not math.isfinite(raw) else float(raw)


def _text_of(raw: Any) -> Any:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return Mismatch(f"expects text, not {describe(raw)}")
    return Mismatch(f"expects text, not {describe(raw)}", f'put it in quotes: "{raw}"')


def describe(raw: Any) -> str:
    """Name a value in a message, with its kind where that is not obvious."""
    if raw is None:
        return "null"
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, Mapping):
        return "a group of keys"
    if isinstance(raw, (list, tuple)):
        return f"the list {list(raw)!r}"
    return f"the text {raw!r}" if isinstance(raw, str) else repr(raw)
