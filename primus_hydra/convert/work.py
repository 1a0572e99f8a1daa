"""Words that both directions of a conversion share."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, int], None]
"""Told of each file that is whole: its name, and the bytes of its tensors."""
