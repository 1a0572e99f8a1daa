"""Plain output: lines for people, strict JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass


def print_lines(lines: Iterable[str]) -> None:
    """Print lines; a letter that the terminal cannot show is written as its code."""
    for line in lines:
        print(printable(line))


def print_json(data: object, *, indent: int | None = 2) -> None:
    """Print plain data, dataclasses and paths as JSON; a number that is not finite becomes text (`nan`, `inf`)."""
    print(printable(json.dumps(as_plain(data), indent=indent, ensure_ascii=False, allow_nan=False)), flush=True)


def as_plain(value: object) -> object:
    """Return data that strict JSON can hold; whatever has no form of its own there becomes text."""
    if is_dataclass(value) and not isinstance(value, type):
        return as_plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): as_plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def printable(text: str) -> str:
    """Return text with letters that the terminal cannot show written as their codes."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, errors="backslashreplace").decode(encoding)
