"""The picture of the loss."""

import math

import pytest
from matplotlib.image import imread

from primus_hydra.run.metrics import MetricsWriter, read_metrics
from primus_hydra.ui.plot import centred_mean, plot_loss, starts_of_attempts


def write(path, losses, *, attempt=1, first=1):
    writer = MetricsWriter(path, attempt, 0)
    for step, loss in enumerate(losses, start=first):
        writer.write({"step": step, "loss": loss, **({"validation_loss": 3.0} if step % 10 == 0 else {})})
    writer.close()


LOSSES = {
    "none": [],
    "one": [8.0],
    "equal": [2.0] * 5,
    "zero": [0.0, 0.0],
    "with nan": [8.0, math.nan, 7.0],
    "only nan": [math.nan] * 3,
    "large range": [math.exp(-step / 20) for step in range(100)],
}


@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES.keys())
def test_any_curve_becomes_a_picture(tmp_path, losses):
    write(tmp_path / "metrics.jsonl", losses)
    picture = imread(plot_loss(tmp_path / "metrics.jsonl", tmp_path / "plots" / "loss.png", "a $run_1"))
    assert picture.shape[:2] == (650, 1170)
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["loss.png"]


def test_a_run_that_logged_nothing_yet_gets_a_picture_that_differs_from_a_curve(tmp_path):
    empty = imread(plot_loss(tmp_path / "absent.jsonl", tmp_path / "empty.png", "run"))
    write(tmp_path / "metrics.jsonl", [8.0, 7.0, 6.0])
    curve = imread(plot_loss(tmp_path / "metrics.jsonl", tmp_path / "curve.png", "run"))
    blue = (curve[..., 2] > curve[..., 0] + 0.3).sum()
    assert blue > 500
    assert (empty[..., 2] > empty[..., 0] + 0.3).sum() == 0


def test_attempts_and_restarts_are_marked_where_they_begin(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [3.0, 2.0])
    write(path, [2.0], attempt=2, first=2)
    writer = MetricsWriter(path, 2, 1)
    writer.write({"step": 3, "loss": 1.0})
    assert starts_of_attempts(read_metrics(path)) == [(2, "attempt 2"), (3, "restart 1")]


def test_the_smoothed_curve_neither_lags_nor_leaves_a_straight_line():
    line = [float(step) for step in range(600)]
    smooth = centred_mean(line)
    assert len(smooth) == 600
    assert smooth[:590] == pytest.approx(line[:590])
    assert centred_mean([5.0]) == [5.0]
