"""The end of a file that may be very long, read from its end."""

from __future__ import annotations

import os
from pathlib import Path

_FIRST_GUESS_BYTES = 256
"""Bytes that a line is taken to have at first."""
_LONGEST_BYTES = 64 * 1024**2
"""Never read more than this: a file without line ends is one long line."""


def last_lines(path: Path, count: int) -> list[bytes]:
    """Return the last lines without their ends, oldest first; a file that cannot be read has none."""
    try:
        if count < 1 or not path.is_file():  # a pipe of that name would never answer
            return []
        with path.open("rb") as file:
            length, size = file.seek(0, os.SEEK_END), _FIRST_GUESS_BYTES * count
            while (content := _end_of(file.fileno(), length, size)).count(b"\n") <= count and size < length:
                if size >= _LONGEST_BYTES:
                    break
                size = min(8 * size, _LONGEST_BYTES)
    except OSError:
        return []
    lines = content.split(b"\n")
    return (lines if lines[-1] else lines[:-1])[-count:]


def _end_of(descriptor: int, length: int, size: int) -> bytes:
    begin = max(0, length - size)
    return os.pread(descriptor, length - begin, begin)
