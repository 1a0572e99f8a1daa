"""Plain data to typed schema objects, and back; every problem is gathered, none is raised.

The validator of the composed tree. It knows types, `Literal` choices, bounds and unknown keys; what keys mean together
is checked elsewhere (`layout`, the backends).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml

from primus_hydra.config.schema import REQUIRED, JobConfig, KeyInfo, info_of
from primus_hydra.config.suggest import key_hint, nearest
from primus_hydra.errors import Problem, UserError

T = TypeVar("T")
_BAD: Any = object()
_LONGEST_SHOWN = 120
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
    return parse_job(path.read_text(encoding="utf-8"))


def parse_job(text: str) -> JobConfig:
    """Read what `dump_job` wrote; raises UserError, or YAML's own error, for anything else."""
    tree = yaml.load(text, Loader=_ExactLoader)
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
        if "." in name:
            outer, _, inner = name.partition(".")
            self.wrong(path, "a key in a file cannot hold a dot", f"write it nested: {outer}: {{{inner}: ...}}")
            return
        parent = path.removesuffix(name)
        here = f"keys here: {', '.join(siblings)}" if siblings else "there are no keys here"
        hint = key_hint(path, [*(f"{parent}{sibling}" for sibling in siblings), *schema_keys(JobConfig)]) or here
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
    if type(None) in kinds and str not in kinds and raw in ("none", "None", "~", ""):
        return Mismatch(_wanted(kinds, raw), "for no value at all write null")
    tries = [convert(kind, raw) for kind in kinds if kind is not type(None)]
    good = [value for value in tries if not isinstance(value, Mismatch)]
    exact = [value for value in good if type(value) is type(raw)]
    if good:
        return (exact or good)[0]
    hints = [miss.hint for miss in tries if miss.hint]
    return Mismatch(_wanted(kinds, raw), hints[0] if hints else None)


def _wanted(kinds: tuple[Any, ...], raw: Any) -> str:
    """Say what a union accepts, the verb once."""
    misses = [convert(kind, raw) for kind in kinds if kind is not type(None)]
    wanted = [
        miss.what.removesuffix(f", not {describe(raw)}").removeprefix("expects ")
        for miss in misses
        if isinstance(miss, Mismatch)
    ]
    return f"expects {' or '.join(wanted)}, not {describe(raw)}"


def _convert_literal(choices: tuple[Any, ...], raw: Any) -> Any:
    for choice in choices:
        if raw == choice and type(raw) is type(choice):
            return choice
    near = nearest(str(raw), [str(choice) for choice in choices])
    listed = ", ".join(str(choice) for choice in choices)
    wanted = f"expects one of {listed}" if len(choices) > 1 else f"expects {listed}"
    return Mismatch(f"{wanted}, not {describe(raw)}", f"did you mean {near[0]}?" if near else None)


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
        return raw if isinstance(raw, bool) else _not_bool(raw)
    if kind is int:
        return _convert_int(raw)
    if kind is float:
        return _convert_float(raw)
    if kind is str:
        return raw if isinstance(raw, str) else _text_of(raw)
    raise TypeError(f"the schema uses a type that the validator does not know: {kind!r}")


def _not_bool(raw: Any) -> Mismatch:
    word = str(raw).strip().lower()
    near = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
    hint = f"write {near.get(word, word)}" if word in (*near, "true", "false") else None
    return Mismatch(f"expects true or false, not {describe(raw)}", hint)


def _convert_int(raw: Any) -> Any:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    whole = _whole_number(raw)
    hint = None if whole is None else f"write {whole}"
    return Mismatch(f"expects a whole number, not {describe(raw)}", hint)


def _whole_number(raw: Any) -> int | None:
    """Return the whole number that was meant by 1e3, 0100, 0x10, "8" or 1,000; None where that is not clear."""
    if isinstance(raw, float):
        return int(raw) if raw.is_integer() else None
    text = raw.strip().replace(",", "") if isinstance(raw, str) else ""
    with contextlib.suppress(ValueError):
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    with contextlib.suppress(ValueError, OverflowError):
        return int(float(text)) if float(text).is_integer() else None
    return None


def _convert_float(raw: Any) -> Any:
    number = raw
    if isinstance(raw, str):
        try:
            number = float(raw)
        except ValueError:
            comma = raw.replace(",", ".", 1)
            return Mismatch(f"expects a number, not {describe(raw)}", f"write {comma}" if _is_number(comma) else None)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return Mismatch(f"expects a number, not {describe(raw)}")
    try:
        number = float(number)
    except OverflowError:
        number = math.inf
    return number if math.isfinite(number) else Mismatch(f"expects a finite number, not {_short(raw)}")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


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
        return f"the list {_short(list(raw))}"
    return f"the text {_short(raw)}" if isinstance(raw, str) else _short(raw)


def _short(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
