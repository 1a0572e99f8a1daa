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
