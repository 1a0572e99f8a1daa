"""The picture of a run: loss over steps, validation losses, and where attempts began."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from primus_hydra.run.atomic import write_bytes
from primus_hydra.run.metrics import Row, last_per_step, number, read_metrics, step_of

_BLUE, _ORANGE, _GREY, _RED = "#1f6fb4", "#d9730d", "#8a8a8a", "#c0392b"
_LOG_ABOVE_RATIO = 8.0
_MARK_UP_TO = 40

Points = list[tuple[int, float]]


def plot_loss(metrics_path: Path, png_path: Path, title: str) -> Path:
    """Draw the losses of a run as a PNG, replaced in one step; works with any number of rows, none included."""
    rows = read_metrics(metrics_path)
    figure = Figure(figsize=(9, 5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _dress(axes, title)
    _draw(axes, rows)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_bytes(png_path, picture.getvalue())
    return png_path


def starts_of_attempts(rows: list[Row]) -> list[tuple[int, str]]:
    """Return the first step of every attempt and restart after the first, with its name."""
    starts: list[tuple[int, str]] = []
    before: tuple[object, object] | None = None
    for row in rows:
        source, step = (row.get("attempt"), row.get("restart")), step_of(row)
        if before is not None and source != before and step is not None:
            attempt, restart = source
            starts.append((step, f"restart {restart}" if before[0] == attempt else f"attempt {attempt}"))
        before = source
    return starts


def _draw(axes: Axes, rows: list[Row]) -> None:
    last = last_per_step(rows)
    train, validation = _points(last, "loss"), _points(last, "validation_loss")
    if not train and not validation:
        axes.text(0.5, 0.5, "no step has been logged", transform=axes.transAxes, ha="center", color=_GREY)
        axes.set_yticks([])
        axes.set_xticks([])
        return
    _draw_train(axes, train)
    if validation:
        steps, losses = zip(*validation, strict=True)
        axes.plot(
            steps, losses, color=_ORANGE, marker="o", markersize=5, linewidth=1.2, label="validation loss", zorder=4
        )
    _draw_starts(axes, starts_of_attempts(rows))
    _draw_not_finite(axes, last)
    _scale(axes, train + validation)
    axes.legend(frameon=False, loc="upper right")


def _draw_train(axes: Axes, train: Points) -> None:
    if not train:
        return
    steps, losses = zip(*train, strict=True)
    last = f"last {losses[-1]:.4f}"
    if len(train) <= _MARK_UP_TO:
        label = f"training loss, {last}"
        axes.plot(steps, losses, color=_BLUE, linewidth=1.6, marker="o", markersize=3.5, label=label)
        return
    axes.plot(steps, losses, color=_BLUE, alpha=0.3, linewidth=0.9, label=f"training loss, {last}")
    axes.plot(steps, centred_mean(losses), color=_BLUE, linewidth=1.9, label="training loss, smoothed", zorder=3)


def centred_mean(losses: Sequence[float]) -> list[float]:
    """Return the mean over a window around each point, so that the curve does not lag behind the loss.

    The window is narrow at the start, where the loss falls fast, and looks back only at the end.
    """
    half, count = max(2, len(losses) // 60), len(losses)
    sums = [0.0, *itertools.accumulate(losses)]
    spans = ((max(0, at - half), min(at + half, 2 * at, count - 1) + 1) for at in range(count))
    return [(sums[stop] - sums[start]) / (stop - start) for start, stop in spans]


def _draw_starts(axes: Axes, starts: list[tuple[int, str]]) -> None:
    for step, name in starts:
        axes.axvline(step - 0.5, color=_GREY, linestyle="--", linewidth=0.9, zorder=1)
        axes.annotate(
            name,
            (step - 0.5, 0.98),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize=8,
            color=_GREY,
        )


def _draw_not_finite(axes: Axes, rows: list[Row]) -> None:
    values = ((step_of(row), number(row, "loss")) for row in rows)
    steps = [step for step, value in values if step is not None and value is not None and not math.isfinite(value)]
    if steps:
        axes.plot(
            steps,
            [0.03] * len(steps),
            transform=axes.get_xaxis_transform(),
            color=_RED,
            marker="x",
            linestyle="",
            label="loss not finite",
        )


def _scale(axes: Axes, points: Points) -> None:
    values, steps = [value for _, value in points], {step for step, _ in points}
    if min(values) > 0 and max(values) / min(values) > _LOG_ABOVE_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(steps) == 1:
        axes.set_xlim(min(steps) - 1.5, max(steps) + 1.5)


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, parse_math=False)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(True, which="both", color="#e3e3e3", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _points(rows: list[Row], name: str) -> Points:
    pairs = ((step_of(row), number(row, name)) for row in rows)
    return [(step, value) for step, value in pairs if step is not None and value is not None and math.isfinite(value)]
