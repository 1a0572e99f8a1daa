"""One field of a neutral model that a recipe says, with the names that it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ModelField:
    """`key` is below `model`; `explicit`: the recipe gives one of the names, else the value is a default there."""

    key: str
    value: Any
    names: tuple[str, ...]
    explicit: bool
