"""Our functions in place of upstream's, where upstream's loop calls them by name; `remove` puts upstream's back.

Few, and each either calls upstream's own or stands for something that the configuration says in its own words: the
learning rates, the places of checkpoints, the validation, the end of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class Hooks:
    """Replaces functions of modules for as long as a training lasts."""

    def __init__(self) -> None:
        self._originals: list[tuple[ModuleType, str, Any]] = []

    def replace(self, module: ModuleType, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put `make(original)` in the place of a function; raises AttributeError if this upstream has none."""
        original = getattr(module, name)
        self._originals.append((module, name, original))
        setattr(module, name, make(original))

    def remove(self) -> None:
        """Put every original back, the last one first."""
        while self._originals:
            setattr(*self._originals.pop())
