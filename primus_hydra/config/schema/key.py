"""One configuration key: its default, its one-line doc, its unit and its bounds.

The schema is plain frozen dataclasses. `key(...)` attaches what help, completion, the reference page and the
validator need to a field; nothing here knows about Hydra or YAML.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


class _Required:
    """The mark of a key that has no default: a group choice or the user must set it."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
_METADATA: Final = "primus_hydra.key"


@dataclass(frozen=True, kw_only=True)
class KeyInfo:
    """What is known of a key beside its type: `doc` is one line, `unit` is shown after the value."""

    doc: str
    unit: str | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def bound_error(self, value: float) -> str | None:
        """Say how `value` breaks the bounds, or None if it does not."""
        checks = (
            (self.ge, "at least", operator.ge),
            (self.gt, "greater than", operator.gt),
            (self.le, "at most", operator.le),
            (self.lt, "less than", operator.lt),
        )
        broken = (
            f"must be {words} {bound:g}"
            for bound, words, holds in checks
            if bound is not None and not holds(value, bound)
        )
        return next(broken, None)


def key(
    default: object,
    doc: str,
    *,
    unit: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Any:
    """Declare a configuration key; `default=REQUIRED` means that something must set it."""
    info = KeyInfo(doc=doc, unit=unit, ge=ge, gt=gt, le=le, lt=lt)
    metadata = {_METADATA: info}
    if isinstance(default, (list, dict)):
        frozen = default
        return dataclasses.field(default_factory=lambda: type(frozen)(frozen), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def node(schema: Callable[[], object], doc: str) -> Any:
    """Declare a sub-tree of the configuration, made of another schema dataclass."""
    return dataclasses.field(default_factory=schema, metadata={_METADATA: KeyInfo(doc=doc)})


def info_of(field: dataclasses.Field[Any]) -> KeyInfo:
    """Return what is known of a schema field; a field without `key()` is a bug in the schema."""
    info = field.metadata.get(_METADATA)
    if not isinstance(info, KeyInfo):
        raise TypeError(f"schema field {field.name!r} was not declared with key() or node()")
    return info
