"""Results of a benchmark: what is shown, kept and drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from primus_hydra.benchmark.plot import PICTURE, plot_result
from primus_hydra.benchmark.result import (
    RESULT,
    Point,
    Result,
    Row,
    joined,
    markdown_lines,
    read_result,
    text_lines,
    write_result,
)

ROW = Row(
    name="mlp.down", shape="8x4x2", value=500.0, unit="TFLOP/s", dtype="bfloat16", seconds=2e-3, peak=1000.0, error=1e-3
)
FOUND = Result(
    suite="gemm",
    model="tiny",
    platform="mi300x",
    setting={"nodes": 1},
    points=(Point(swept=(), rows=(replace(ROW, count=32),)),),
    notes=("a note",),
)


def test_a_rate_is_held_against_the_peak() -> None:
    (line,) = [line for line in text_lines(FOUND) if "mlp.down" in line]

    assert line.split() == ["mlp.down", "x32", "8x4x2", "bfloat16", "500", "TFLOP/s", "2", "ms", "50.0", "%", "1.0e-03"]
    assert replace(ROW, peak=None).fraction is None


def test_a_wrong_result_is_shown_as_wrong_and_fails_the_benchmark() -> None:
    wrong = replace(FOUND, points=(Point(swept=(), rows=(replace(ROW, problem="off by 0.5"),)),))

    assert wrong.failed
    assert not FOUND.failed
    assert "WRONG: off by 0.5" in "\n".join(text_lines(wrong))


def test_what_could_not_be_measured_says_why() -> None:
    none = replace(FOUND, points=(Point(swept=(), rows=(replace(ROW, value=None, problem="out of memory"),)),))

    assert "out of memory" in "\n".join(markdown_lines(none))


def test_results_are_read_back_as_they_were(tmp_path: Path) -> None:
    write_result(FOUND, tmp_path)

    assert read_result(tmp_path / RESULT) == FOUND
    assert read_result(tmp_path / "none") is None


def test_a_sweep_is_one_table_with_a_column_for_what_was_varied(tmp_path: Path) -> None:
    points = [replace(FOUND, points=(replace(FOUND.points[0], swept=(f"parallel.tp={tp}",)),)) for tp in (1, 2)]
    whole = joined(points)
    lines = list(markdown_lines(whole))

    assert sum("parallel.tp=2" in line for line in lines) == 1
    assert any(line.startswith("| point | what |") for line in lines)


def test_bars_and_lines_are_drawn_and_nothing_without_numbers(tmp_path: Path) -> None:
    plot_result(FOUND, tmp_path / "bars")
    rows = tuple(Row(name="ring", shape=f"{mib} MiB x 2 ranks", value=1.0, unit="GB/s") for mib in (1, 4))
    plot_result(replace(FOUND, suite="collectives", points=(Point(swept=(), rows=rows),)), tmp_path / "lines")
    plot_result(replace(FOUND, points=()), tmp_path / "nothing")

    for name in ("bars", "lines"):
        assert (tmp_path / name / PICTURE).read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "nothing" / PICTURE).exists()
