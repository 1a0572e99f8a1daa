"""Names of nodes out of Slurm's short form: `gpu[1-3,07],login-a` without `scontrol`, which need not be there."""

from __future__ import annotations

import re

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def expand(nodelist: str) -> list[str]:
    """Return the names in order, with leading zeros as written; raises ValueError for what is no list of nodes."""
    parts = _PART.findall(nodelist)
    if not parts or ",".join(parts) != nodelist:
        raise ValueError(f"{nodelist!r} is no list of nodes")
    return [name for part in parts for name in _names(part)]


def _names(part: str) -> list[str]:
    """Return the names that one part stands for; the last bracket counts fastest."""
    found = _BRACKET.search(part)
    if found is None:
        return [part]
    head, rest = part[: found.start()], _names(part[found.end() :])
    return [head + number + tail for number in _numbers(found[1]) for tail in rest]


def _numbers(ranges: str) -> list[str]:
    return [number for text in ranges.split(",") for number in _range(text)]


def _range(text: str) -> list[str]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no range of numbers")
    first, last = found[1], found[2] or found[1]
    if int(last) < int(first):
        raise ValueError(f"{text!r} ends before it begins")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
