"""What the schema says of a dotted key: a leaf with a type, a node of keys, or a name inside a free-form node."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from primus_hydra.config.build import hints_of, schema_keys
from primus_hydra.config.schema import JobConfig

KeyKind = Literal["leaf", "node", "free", "unknown"]


@dataclass(frozen=True, kw_only=True)
class KeyFacts:
    """What a key is, and the type its value should have (None for nodes and unknown keys)."""

    kind: KeyKind
    type: Any = None

    @property
    def takes_text(self) -> bool:
        """Whether the value is text, so that it must arrive as typed."""
        return self.kind in ("leaf", "free") and str in _members(self.type)

    @property
    def takes_texts(self) -> bool:
        """Whether the value is a list of text, and no text of its own."""
        return self.kind in ("leaf", "free") and not self.takes_text and items_of(self.type) is str

    @property
    def nullable(self) -> bool:
        """Whether the value may be null."""
        return type(None) in _members(self.type)

    @property
    def listable(self) -> bool:
        """Whether the value may be a list."""
        return any(get_origin(member) is list for member in _members(self.type))


def facts_of(key: str) -> KeyFacts:
    """Look a dotted key up in the schema."""
    schema: type[Any] = JobConfig
    parts = key.split(".")
    for position, part in enumerate(parts):
        kind = hints_of(schema).get(part)
        if kind is None:
            return KeyFacts(kind="unknown")
        rest = parts[position + 1 :]
        if dataclasses.is_dataclass(kind):
            schema = typing.cast(type[Any], kind)
        elif get_origin(kind) is dict:
            return KeyFacts(kind="free", type=_free_type(kind, rest)) if rest else KeyFacts(kind="leaf", type=kind)
        else:
            return KeyFacts(kind="unknown") if rest else KeyFacts(kind="leaf", type=kind)
    return KeyFacts(kind="node")


def key_type(key: str) -> Any:
    """Return the type at a dotted name, of a leaf or of a node; Any where the schema says nothing. "" is the root."""
    kind: Any = JobConfig
    for part in key.split(".") if key else ():
        kind = member_of(kind, part)
    return kind


def member_of(kind: Any, name: str) -> Any:
    """Return the type of one name below a type; Any where the schema says nothing."""
    if dataclasses.is_dataclass(kind):
        return hints_of(typing.cast(type[Any], kind)).get(name, Any)
    return get_args(kind)[1] if get_origin(kind) is dict else Any


def items_of(kind: Any) -> Any:
    """Return the type of the items where a type allows a list, else Any."""
    return next((get_args(member)[0] for member in _members(kind) if get_origin(member) is list), Any)


def wants_raw_text(kind: Any, text: str) -> bool:
    """Whether a plain YAML scalar of this type is its text: any for a text key, a named choice for the others."""
    members = _members(kind)
    return str in members or any(get_origin(member) is Literal and text in get_args(member) for member in members)


@functools.cache
def all_keys() -> tuple[str, ...]:
    """Every leaf key of the schema."""
    return tuple(schema_keys(JobConfig))


def _free_type(kind: Any, rest: list[str]) -> Any:
    return get_args(kind)[1] if len(rest) == 1 else Any


def _members(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) in (typing.Union, types.UnionType):
        return get_args(kind)
    return (kind,)
