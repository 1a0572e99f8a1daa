"""The record of a sweep: what is written, what stays of other commands, and how points are judged."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from primus_hydra.run.metrics import MetricsWriter
from primus_hydra.run.paths import RunPaths, SweepPaths
from primus_hydra.run.sweep import PointRow, Sweep, read_sweep, write_sweep
from primus_hydra.run.sweep_look import judged, log_of, looked_at
from tests.unit.tasks.made_runs import make_run


def row(base: Path, name: str, **facts: object) -> PointRow:
    values = {"overrides": (f"optimizer.lr={name}",), "run": str(base / name), "state": "finished", **facts}
    return PointRow(point=name, **values)  # type: ignore[arg-type]


def measure(base: Path, name: str, **values: float) -> None:
    writer = MetricsWriter(RunPaths(base / name).metrics, attempt=1, restart=0)
    writer.write({"step": 1, **values})
    writer.close()


def test_a_record_is_read_as_it_was_written_whatever_the_values(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "s")
    nasty = dataclasses.replace(row(tmp_path, "a"), overrides=("env.X='a,\"b\n", "model=é"), reason="x\ny", step=0)
    rows = (nasty, row(tmp_path, "b", value=float("nan"), state="failed", exit_code=7), row(tmp_path, "c", value=1.5))
    written = write_sweep(paths, lambda before: Sweep(metric="loss", rows=rows))

    assert repr(read_sweep(paths)) == repr(written.__class__(**{**vars(written), "updated_at": read_time(paths)}))
    json.loads(paths.record.read_text(), parse_constant=pytest.fail)


def read_time(paths: SweepPaths) -> float:
    return float(json.loads(paths.record.read_text())["updated_at"])


def test_the_table_has_a_column_for_each_key_that_is_swept(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "s")
    rows = (row(tmp_path, "a", value=2.0), dataclasses.replace(row(tmp_path, "b"), overrides=("training.seed=1,2",)))
    write_sweep(paths, lambda before: Sweep(metric="loss", rows=rows))
    with paths.table.open(newline="") as file:
        table = list(csv.DictReader(file))

    assert [line["optimizer.lr"] for line in table] == ["a", ""]
    assert [line["training.seed"] for line in table] == ["", "1,2"]
    assert [line["loss"] for line in table] == ["2.0", ""]


def test_rows_of_other_commands_are_given_to_the_one_that_writes(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "s")
    write_sweep(paths, lambda before: Sweep(metric="loss", rows=(row(tmp_path, "a"),)))
    write_sweep(paths, lambda before: Sweep(metric="loss", rows=(*before, row(tmp_path, "b"))))
    found = read_sweep(paths)

    assert found is not None
    assert [one.point for one in found.rows] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "{}", '{"points": 3}', '{"metric": "loss", "objective": "auto", "points": [1]}'])
def test_a_file_of_another_program_is_no_record(text: str, tmp_path: Path) -> None:
    SweepPaths(tmp_path).record.write_text(text)

    assert read_sweep(SweepPaths(tmp_path)) is None


def test_points_are_judged_by_the_validation_loss_where_it_is_measured(tmp_path: Path) -> None:
    measure(tmp_path, "a", loss=3.0)
    measure(tmp_path, "b", loss=2.0, validation_loss=2.5)
    rows = [row(tmp_path, "a"), row(tmp_path, "b"), row(tmp_path, "c")]

    auto, named = judged(rows, "auto"), judged(rows, "loss")
    assert (auto.metric, [one.value for one in auto.rows]) == ("validation_loss", [None, 2.5, None])
    assert (named.metric, [one.value for one in named.rows]) == ("loss", [3.0, 2.0, None])


def test_the_best_point_is_a_finished_one_and_more_speed_is_better(tmp_path: Path) -> None:
    values = {"a": 3.0, "b": 2.0, "c": 1.0, "d": float("nan")}
    rows = tuple(
        row(tmp_path, name, value=value, state="saved" if name == "c" else "finished") for name, value in values.items()
    )

    best = [Sweep(metric=metric, rows=rows).best for metric in ("loss", "tokens_per_s")]
    assert [one.point if one else None for one in best] == ["b", "a"]
    assert Sweep(metric="loss", rows=rows[2:]).best is None


def test_a_point_is_told_as_its_run_tells_it(tmp_path: Path) -> None:
    make_run(tmp_path, "a", status="failed", step=7)
    planned = row(tmp_path, "a", state="not started")
    found = looked_at(planned)

    assert (found.state, found.step, found.steps, found.exit_code) == ("failed", 7, 20, 1)
    assert found.reason == "failed at step 7"
    never = row(tmp_path, "never", state="not submitted", reason="why", log="where")
    assert looked_at(never) == never


def test_a_run_without_any_log_names_none(tmp_path: Path) -> None:
    assert log_of(RunPaths(tmp_path / "nowhere")) is None
