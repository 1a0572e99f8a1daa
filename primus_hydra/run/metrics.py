"""metrics.jsonl: one flat JSON object per logged step, appended by one process and read by anyone at any time.

The file stays strict JSON, so a value that is not finite is written as null, and `nonfinite` says which it was; readers
here get the true value back. A crash may leave a torn line anywhere an attempt ended: readers skip it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from primus_hydra.run.tail import last_lines

Row: TypeAlias = dict[str, object]
_NONFINITE = "nonfinite"


class MetricsWriter:
    """Appends rows for one attempt and restart; each row is in the file when `write` returns."""

    def __init__(self, path: Path, attempt: int, restart: int) -> None:
        self._mark = {"attempt": attempt, "restart": restart}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._end_torn_line()

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row, with the time (seconds since the epoch) added; keys that are None are left out.

        Raises OSError when the disk is full, and leaves no part of the row.
        """
        present = {name: value for name, value in row.items() if value is not None}
        line = json.dumps(_finite({**present, "time": round(time.time(), 3), **self._mark}), allow_nan=False)
        # One write call per line: appends of one writer then never interleave with what a reader sees.
        before = os.fstat(self._descriptor).st_size
        try:
            _write_all(self._descriptor, line.encode("utf-8") + b"\n")
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, before)
            raise

    def close(self) -> None:
        """Close the file; writing afterwards fails."""
        os.close(self._descriptor)

    def _end_torn_line(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            _write_all(self._descriptor, b"\n")


class MetricsTail:
    """Follows a metrics file that another process writes; the file may not exist yet."""

    def __init__(self, path: Path, *, skip_existing: bool = False) -> None:
        self._path = path
        self._offset = _size(path) if skip_existing else 0

    def poll(self) -> list[Row]:
        """Return the rows completed since the last call."""
        if _size(self._path) < self._offset:
            self._offset = 0
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read()
        except OSError:  # not there yet, or a file system that has lost it for a moment
            return []
        complete = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(complete)
        return _rows_of(complete)


def read_metrics(path: Path) -> list[Row]:
    """Return all whole rows in the order they were written; an absent file has none."""
    try:
        return _rows_of(path.read_bytes())
    except FileNotFoundError:
        return []


def newest_rows(path: Path, count: int) -> list[Row]:
    """Return the last rows, oldest first, without reading the file from its beginning; an unreadable one has none."""
    rows = (_row_of(line) for line in last_lines(path, count))
    return [row for row in rows if row is not None]


def last_per_step(rows: Iterable[Row]) -> list[Row]:
    """Return one row per step, the last written, in order of steps: a resumed attempt repeats steps."""
    by_step = {step: row for row in rows if (step := step_of(row)) is not None}
    return [by_step[step] for step in sorted(by_step)]


def step_of(row: Row) -> int | None:
    """Return the step of a row."""
    step = row.get("step")
    return step if isinstance(step, int) else None


def number(row: Row, name: str) -> float | None:
    """Return a numeric value of a row (it may be nan or infinite), or None where the row has none."""
    value = row.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _finite(row: Mapping[str, object]) -> Row:
    bad = {name: str(value) for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)}
    if not bad:
        return dict(row)
    return {**row, **dict.fromkeys(bad), _NONFINITE: bad}


def _rows_of(content: bytes) -> list[Row]:
    rows = (_row_of(line) for line in content.splitlines())
    return [row for row in rows if row is not None]


def _row_of(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    bad = row.pop(_NONFINITE, {})
    try:
        return {**row, **{name: float(text) for name, text in bad.items()}}
    except (AttributeError, TypeError, ValueError):  # a line of another program
        return None


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
