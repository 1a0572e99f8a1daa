"""Results of a benchmark: rows of numbers, as JSON, as a table, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from primus_hydra.run.atomic import read_json, write_json, write_text

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that was measured: `value` in `unit`, `seconds` of one call, `peak` that the hardware could reach.

    `shape` says of what; `error` is the deviation of the result where one was checked, `problem` why there is none.
    """

    name: str
    shape: str
    value: float | None
    unit: str
    dtype: str = ""
    seconds: float | None = None
    peak: float | None = None
    error: float | None = None
    count: int = 1
    slowest: float | None = None
    problem: str = ""

    @property
    def fraction(self) -> float | None:
        """The part of the peak that was reached."""
        return None if self.value is None or not self.peak else self.value / self.peak


@dataclass(frozen=True, kw_only=True)
class Point:
    """The rows of one composed job; `swept` are the overrides that a sweep varied."""

    swept: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A benchmark: `setting` says on what, `notes` what follows from the rows."""

    suite: str
    model: str
    platform: str
    setting: Mapping[str, Any]
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something could not be measured, or was wrong."""
        return any(row.problem for point in self.points for row in point.rows)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with the fractions of the peaks."""
        points = [
            {"swept": list(point.swept), "rows": [{**asdict(row), "fraction": row.fraction} for row in point.rows]}
            for point in self.points
        ]
        return {
            "suite": self.suite,
            "model": self.model,
            "platform": self.platform,
            "setting": dict(self.setting),
            "points": points,
            "notes": list(self.notes),
        }


def read_result(path: Path) -> Result | None:
    """Read what `to_json` wrote; None if it is not there or something else."""
    data: Any = read_json(path)
    try:
        return None if data is None else _result(data)
    except (KeyError, TypeError):
        return None


def joined(results: Sequence[Result]) -> Result:
    """Return the results of a sweep's points as one."""
    first = results[0]
    points = tuple(point for result in results for point in result.points)
    notes = tuple(dict.fromkeys(note for result in results for note in result.notes))
    models = list(dict.fromkeys(result.model for result in results))
    return Result(
        suite=first.suite,
        model=", ".join(models),
        platform=first.platform,
        setting=first.setting,
        points=points,
        notes=notes if len(points) == 1 else (),
    )


def write_result(found: Result, folder: Path) -> None:
    """Write JSON and Markdown."""
    write_text(folder / "report.md", "\n".join(markdown_lines(found)) + "\n")
    write_json(folder / RESULT, found.to_json())


def text_lines(found: Result) -> Iterator[str]:
    """Yield a table for a terminal."""
    yield f"benchmark {found.suite} of {found.model} on {found.platform}: {_setting(found)}"
    cells = [_header(found), *_cells(found)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    for row in cells:
        padded = [
            cell.ljust(width) if place < 3 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f"  {'  '.join(padded)}".rstrip()
    yield from (f"  note: {note}" for note in found.notes)


def markdown_lines(found: Result) -> Iterator[str]:
    """Yield the report as Markdown."""
    header, *rows = [_header(found), *_cells(found)]
    yield f"# Benchmark `{found.suite}`: {found.model} on {found.platform}"
    yield ""
    yield f"{_setting(found)}."
    yield ""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    if found.notes:
        yield from ("", *(f"- {note}" for note in found.notes))


def _header(found: Result) -> list[str]:
    swept = ["point"] if len(found.points) > 1 else []
    return [*swept, "what", "shape", "dtype", "measured", "slowest", "time", "of peak", "error"]


def _cells(found: Result) -> list[list[str]]:
    many = len(found.points) > 1
    return [
        [*([", ".join(point.swept) or "-"] if many else []), *_row(row)] for point in found.points for row in point.rows
    ]


def _row(row: Row) -> list[str]:
    if row.value is None:
        return [row.name, row.shape, row.dtype, row.problem or "-", "", "", "", ""]
    return [
        f"{row.name} x{row.count}" if row.count > 1 else row.name,
        row.shape,
        row.dtype,
        f"{row.value:.3g} {row.unit}",
        "" if row.slowest is None else f"{row.slowest:.3g}",
        "" if row.seconds is None else _time(row.seconds),
        "" if row.fraction is None else f"{100 * row.fraction:.1f} %",
        f"WRONG: {row.problem}" if row.problem else "" if row.error is None else f"{row.error:.1e}",
    ]


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _setting(found: Result) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.setting.items())


def _result(data: Mapping[str, Any]) -> Result:
    return Result(
        suite=data["suite"],
        model=data["model"],
        platform=data["platform"],
        setting=data["setting"],
        points=tuple(
            Point(
                swept=tuple(point["swept"]),
                rows=tuple(
                    Row(**{name: value for name, value in row.items() if name != "fraction"}) for row in point["rows"]
                ),
            )
            for point in data["points"]
        ),
        notes=tuple(data["notes"]),
    )
