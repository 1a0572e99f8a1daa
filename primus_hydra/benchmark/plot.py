"""The picture of a benchmark: bars against the peak, or bandwidth over the size of the buffer."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from primus_hydra.benchmark.result import Result, Row
from primus_hydra.run.atomic import write_bytes

PICTURE = "plot.png"
_COLOURS = ("#1f6fb4", "#d9730d", "#2e8b57", "#8a5fbf", "#c0392b", "#6b6b6b")


def plot_result(found: Result, folder: Path) -> None:
    """Draw what was measured; nothing is drawn where nothing was."""
    rows = [(point.swept, row) for point in found.points for row in point.rows if row.value is not None]
    if not rows:
        return
    figure = Figure(figsize=(9, max(3.0, 0.32 * len(rows) + 1.5) if found.suite != "collectives" else 5), dpi=130)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(f"{found.suite} of {found.model} on {found.platform}", loc="left", fontsize=12, parse_math=False)
    _lines(axes, rows) if found.suite == "collectives" else _bars(axes, rows)
    axes.grid(True, color="#e3e3e3", linewidth=0.7)
    axes.set_axisbelow(True)
    figure.tight_layout()
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_bytes(folder / PICTURE, picture.getvalue())


def _bars(axes: Axes, rows: list[tuple[tuple[str, ...], Row]]) -> None:
    labels = [" ".join([row.name, row.dtype, *swept]) for swept, row in rows]
    places = range(len(rows))
    axes.barh(places, [row.value or 0.0 for _, row in rows], color=_COLOURS[0])
    peaks = [(place, row.peak) for place, (_, row) in enumerate(rows) if row.peak]
    if peaks:
        at, values = zip(*peaks, strict=True)
        axes.plot(values, at, linestyle="", marker="|", markersize=14, color=_COLOURS[4], label="peak of the platform")
        axes.legend(frameon=False)
    axes.set_yticks(list(places), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(rows[0][1].unit)


def _lines(axes: Axes, rows: list[tuple[tuple[str, ...], Row]]) -> None:
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for swept, row in rows:
        series[" ".join([row.name, *swept])].append((float(row.shape.split()[0]), row.value or 0.0))
    for place, (label, points) in enumerate(series.items()):
        sizes, values = zip(*sorted(points), strict=True)
        axes.plot(sizes, values, marker="o", color=_COLOURS[place % len(_COLOURS)], label=label)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("buffer of a rank (MiB)")
    axes.set_ylabel("bus bandwidth (GB/s)")
    axes.legend(frameon=False)
