"""What `task=plan` writes where `task.output` names a folder: pictures, a page with them, what a search found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from primus_hydra.config.schema import JobConfig
from primus_hydra.plan.rates import Rates, rates_of
from primus_hydra.plan.schedule import simulate
from primus_hydra.plan.setting import Setting, setting_of
from primus_hydra.plan.throughput import throughput_of, timeline_of
from primus_hydra.run.atomic import write_bytes
from primus_hydra.ui.plan_text import plan_text
from primus_hydra.ui.plan_view import PlanView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from primus_hydra.config.layout import Layout

_NODES = (1, 2, 4, 8, 16, 32, 64)
_ROUNDS_DRAWN = 3


def write_plan(folder: Path, job: JobConfig, layout: Layout, view: PlanView) -> list[Path]:
    """Write the pictures of a plan that has a projection; return the files."""
    from primus_hydra.ui import plan_pictures as pictures

    projection = view.projection
    if projection is None:
        return []
    vocab = view.model.vocab_size or 0
    setting, name = setting_of(job, layout, vocab), view.run.name
    memory = projection.memory
    figures = {
        "memory": pictures.memory_figure(
            [stage.parts for stage in memory.stages], memory.capacity, f"{name}: memory per stage"
        )
    }
    rates = rates_of(job.platform, setting)
    if rates is not None:
        if setting.pp > 1:
            figures["timeline"] = _timeline(setting, rates, name)
        figures["scaling"] = _scaling(setting, rates, layout.nodes, name)
    return pictures.write_pictures(folder, figures, plan_text(view), f"Plan of {name}")


def _timeline(setting: Setting, rates: Rates, name: str) -> Figure:
    from primus_hydra.ui.plan_pictures import Block, timeline_figure

    drawn = timeline_of(setting, rates, _ROUNDS_DRAWN * setting.pp)
    run = simulate(drawn)
    blocks = [[Block(**vars(op)) for op in rank] for rank in run.work]
    part = (
        f"the first {drawn.microbatches} of {setting.microbatches}"
        if drawn.microbatches < setting.microbatches
        else "all"
    )
    return timeline_figure(blocks, f"{name}: {setting.schedule}, {part} microbatches, {run.bubble:.0%} idle")


def _scaling(setting: Setting, rates: Rates, nodes: int, name: str) -> Figure:
    from primus_hydra.ui.plan_pictures import scaling_figure

    batch = setting.microbatches * setting.dp_shard
    grown, same = [], []
    for count in _NODES:
        shards, rest = divmod(setting.dp_shard * count, nodes)
        if rest or shards == 0:
            continue
        larger = dataclasses.replace(setting, dp_shard=shards)
        grown.append((count, _speed(larger, rates)))
        if batch % shards == 0:
            same.append((count, _speed(dataclasses.replace(larger, microbatches=batch // shards), rates)))
    return scaling_figure(grown, same, f"{name}: projected speed over nodes")


def _speed(setting: Setting, rates: Rates) -> float:
    return throughput_of(setting, rates, exact=False).tokens_per_s_per_gpu * setting.world


def write_search(folder: Path, rows: Sequence[dict[str, object]]) -> Path:
    """Write every candidate of a search as one JSON object per line, fastest first."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "search.jsonl"
    write_bytes(file, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    return file
