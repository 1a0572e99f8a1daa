"""Pictures of a projection: memory of every stage, the pipeline's timeline, speed over nodes; a page with all three.

SVG and PNG files, and one HTML page that needs nothing beside itself.
"""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from primus_hydra.run.atomic import write_bytes

COLOURS = ("#1f6fb4", "#6baed6", "#08519c", "#9e9ac8", "#d9730d", "#fdae6b", "#74c476", "#bdbdbd", "#636363")
_KINDS = {"F": "#1f6fb4", "B": "#d9730d", "W": "#9a9a9a"}
_NUMBERED_UP_TO = 400


@dataclass(frozen=True, kw_only=True)
class Block:
    """One piece of a rank's work in a timeline."""

    kind: str
    chunk: int
    microbatch: int
    start: float
    end: float


def memory_figure(stages: Sequence[Mapping[str, float]], capacity: float | None, title: str) -> Figure:
    """Draw the parts of every stage's memory (GiB) on top of each other, and the capacity as a line."""
    figure, axes = _figure(max(6.0, 3.0 + 0.6 * len(stages)), 5.0, title)
    bottoms = [0.0] * len(stages)
    for colour, part in zip(COLOURS, stages[0], strict=False):
        sizes = [stage[part] for stage in stages]
        if max(sizes) > 0:
            axes.bar(range(len(stages)), sizes, bottom=bottoms, color=colour, width=0.7, label=part)
        bottoms = [below + size for below, size in zip(bottoms, sizes, strict=True)]
    if capacity is not None:
        axes.axhline(capacity, color="#c0392b", linestyle="--", linewidth=1.2, label=f"{capacity:g} GiB there are")
    axes.set_xticks(range(len(stages)))
    axes.set_xlabel("pipeline stage")
    axes.set_ylabel("GiB of its fullest rank")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def timeline_figure(ranks: Sequence[Sequence[Block]], title: str) -> Figure:
    """Draw who computes what when: forwards blue, backwards orange, gradients of weights grey; later chunks darker."""
    figure, axes = _figure(13.0, 1.6 + 0.45 * len(ranks), title)
    count = sum(len(rank) for rank in ranks)
    chunks = 1 + max(block.chunk for rank in ranks for block in rank)
    for number, rank in enumerate(ranks):
        for kind, colour in _KINDS.items():
            mine = [block for block in rank if block.kind == kind]
            for block in mine:
                shade = 0.55 + 0.45 * block.chunk / max(1, chunks - 1)
                axes.broken_barh(
                    [(block.start, block.end - block.start)], (number - 0.42, 0.84), facecolor=colour, alpha=shade,
                    edgecolor="white", linewidth=0.4,
                )  # fmt: skip
                if count <= _NUMBERED_UP_TO:
                    middle = (block.start + block.end) / 2
                    axes.text(
                        middle, number, str(block.microbatch), ha="center", va="center", fontsize=6, color="white"
                    )
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    axes.set_yticks(range(len(ranks)))
    axes.set_ylabel("pipeline rank")
    axes.set_xlabel("seconds")
    return figure


def scaling_figure(points: Sequence[tuple[int, float]], fixed: Sequence[tuple[int, float]], title: str) -> Figure:
    """Draw tokens/s over nodes: with a batch that grows with them, and with the job's; a dotted line is the ideal."""
    figure, axes = _figure(7.5, 5.0, title)
    nodes, speeds = [point[0] for point in points], [point[1] for point in points]
    axes.plot(nodes, speeds, marker="o", color="#1f6fb4", label="batch grows with the nodes")
    if fixed:
        axes.plot(*zip(*fixed, strict=True), marker="s", color="#d9730d", label="the job's global batch")
    axes.plot(nodes, [speeds[0] / nodes[0] * count for count in nodes], linestyle=":", color="#8a8a8a", label="ideal")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(nodes, [str(count) for count in nodes])
    axes.set_yticks(speeds, [f"{speed:,.0f}" for speed in speeds])
    axes.minorticks_off()
    axes.set_xlabel("nodes")
    axes.set_ylabel("tokens/s")
    axes.legend(frameon=False)
    return figure


def _figure(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11, parse_math=False)
    axes.set_axisbelow(True)
    axes.grid(True, axis="y", color="#e3e3e3", linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def drawn(figure: Figure, form: str) -> bytes:
    """Return a figure as svg or png; the same figure gives the same bytes."""
    rcParams["svg.hashsalt"] = "primus_hydra"
    picture = io.BytesIO()
    figure.savefig(picture, format=form, metadata={"Date": None} if form == "svg" else None)
    return picture.getvalue()


def write_pictures(folder: Path, figures: Mapping[str, Figure], page: str, title: str) -> list[Path]:
    """Write every figure as SVG and PNG, and plan.html with all of them and `page` as text; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written, parts = [], []
    for name, figure in figures.items():
        vector = drawn(figure, "svg")
        for form, content in (("svg", vector), ("png", drawn(figure, "png"))):
            written.append(folder / f"{name}.{form}")
            write_bytes(written[-1], content)
        text = vector.decode()
        parts.append(f"<h2>{html.escape(name)}</h2>\n{text[text.index('<svg') :]}")
    written.append(folder / "plan.html")
    write_bytes(written[-1], _page(title, parts, page).encode())
    return written


def _page(title: str, parts: Sequence[str], text: str) -> str:
    style = "body{font:14px sans-serif;margin:2em;max-width:1200px}svg{max-width:100%;height:auto}pre{overflow-x:auto}"
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
    body = "\n".join(parts)
    shown = f"<h1>{html.escape(title)}</h1>\n{body}\n<pre>{html.escape(text)}</pre>"
    return f"<!doctype html>\n<html><head>{head}</head><body>{shown}</body></html>\n"
