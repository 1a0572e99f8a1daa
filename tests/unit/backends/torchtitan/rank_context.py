"""A rank's context in memory, for translating a job without ranks or data on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepared import PreparedData
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.contracts import RankContext, StepMetrics

MOCK = PreparedData(
    vocab_size=512,
    corpus_hash=None,
    tokens_dir=None,
    tokenizer_dir=None,
    documents=0,
    train_tokens=0,
    validation_tokens=0,
)


class Notes:
    """Remembers what a trainer says to its run."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.metrics: list[StepMetrics] = []
        self.complete: list[int] = []
        self.asked: list[int] = []

    def log(self, metrics: StepMetrics) -> None:
        self.metrics.append(metrics)

    def agreed(self, step: int) -> bool:
        self.asked.append(step)
        return step == self.stop_at

    def completed(self, step: int) -> None:
        self.complete.append(step)


def context_for(job: JobConfig, *, notes: Notes | None = None, **changes: Any) -> RankContext:
    """Return the context of rank 0 of a job."""
    layout, problems = layout_of(job)
    assert layout is not None, problems
    notes = notes or Notes()
    values: dict[str, Any] = {
        "rank": 0,
        "local_rank": 0,
        "world_size": layout.world_size,
        "local_world_size": layout.world_size,
        "attempt": 1,
        "restart": 0,
        "paths": RunPaths(Path("some-run")),
        "layout": layout,
        "data": MOCK,
        "resume_from": None,
        "backend_version": "0.3.0",
        "metrics": notes,
        "stop": notes,
        "ledger": notes,
    }
    return RankContext(**(values | changes))
