"""Every key in plain words (type, default, limits, doc): for help, completion, the reference and the surface."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from primus_hydra.config.build import defaults_of, hints_of
from primus_hydra.config.schema import REQUIRED, JobConfig, KeyInfo, info_of

REQUIRED_WORD = "required"


@dataclass(frozen=True, kw_only=True)
class KeyRow:
    """One key in words; `kind` is its type, `choices` are the words it may be where those are few."""

    key: str
    kind: Any
    type: str
    default: str
    limits: str
    doc: str

    @property
    def choices(self) -> tuple[str, ...]:
        """Literal choices, booleans and null, as a person types them; empty where any other value is possible too."""
        return tuple(_choices(self.kind))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """A node of keys: its dotted name (empty for the top level), its one-line doc and its own keys."""

    node: str
    doc: str
    rows: tuple[KeyRow, ...]


def job_nodes() -> list[NodeRow]:
    """Return every node of the configuration, parents before children, the top level first."""
    return list(_nodes(JobConfig, "", "Keys outside every node."))


def job_rows() -> dict[str, KeyRow]:
    """Return every key of the configuration by name."""
    return {row.key: row for node in job_nodes() for row in node.rows}


def rows_of(schema: type[Any], prefix: str = "") -> list[KeyRow]:
    """Return the keys of one schema dataclass, without those of the nodes below it."""
    defaults = defaults_of(schema)
    return [
        _row(field, hints_of(schema)[field.name], defaults[field.name], prefix)
        for field in dataclasses.fields(schema)
        if not dataclasses.is_dataclass(hints_of(schema)[field.name])
    ]


def type_name(kind: Any) -> str:
    """Return a type as a person would write it."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(type_name(member) for member in get_args(kind))
    if get_origin(kind) is Literal:
        return ", ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) is list:
        return f"list of {type_name(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return f"keys with {type_name(get_args(kind)[1])}"
    names = {int: "int", float: "float", bool: "bool", str: "text", type(None): "null"}
    return names.get(kind, "any value")


def plain(value: object) -> str:
    """Return a value as it would be typed."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(value) if value.is_integer() else f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(plain(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{plain(item)}' for name, item in value.items())}}}"
    return str(value)


def _nodes(schema: type[Any], path: str, doc: str) -> Iterator[NodeRow]:
    yield NodeRow(node=path, doc=doc, rows=tuple(rows_of(schema, path)))
    for field in dataclasses.fields(schema):
        kind = hints_of(schema)[field.name]
        if dataclasses.is_dataclass(kind):
            yield from _nodes(typing.cast(type[Any], kind), f"{path}.{field.name}".lstrip("."), info_of(field).doc)


def _row(field: dataclasses.Field[Any], kind: Any, default: object, prefix: str) -> KeyRow:
    info = info_of(field)
    return KeyRow(
        key=f"{prefix}.{field.name}".lstrip("."),
        kind=kind,
        type=type_name(kind),
        default=REQUIRED_WORD if field.default is REQUIRED else plain(default),
        limits=_limits(info),
        doc=info.doc,
    )


def _limits(info: KeyInfo) -> str:
    bounds = ((info.ge, ">="), (info.gt, ">"), (info.le, "<="), (info.lt, "<"))
    words = [f"{sign} {bound:g}" for bound, sign in bounds if bound is not None]
    return ", ".join(words + ([f"in {info.unit}"] if info.unit else []))


def _choices(kind: Any) -> Iterator[str]:
    if kind is bool:
        yield from ("true", "false")
    elif kind is type(None):
        yield "null"
    elif get_origin(kind) is Literal:
        yield from (str(choice) for choice in get_args(kind))
    elif get_origin(kind) in (typing.Union, types.UnionType):
        for member in get_args(kind):
            yield from _choices(member)
