"""A small translated job: it shows which classes the translation puts where, and needs no ranks, data or folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from primus_hydra.backends.torchtitan.native_0_3 import translate
from primus_hydra.config.build import build_job, defaults_of
from primus_hydra.config.layout import layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import raise_all
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.contracts import RankContext, StepMetrics

_MODEL = {
    "name": "example",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "vocab_size": 512,
}


class _Silence:
    """A run that nobody watches or stops."""

    def log(self, metrics: StepMetrics) -> None:
        """Drop the metrics."""

    def agreed(self, step: int) -> bool:
        """Never stop."""
        return False

    def completed(self, step: int) -> None:
        """Drop the note."""


def example_config() -> Any:
    """Return the `Trainer.Config` of a small job for a CPU."""
    tree = defaults_of(JobConfig) | {
        "model": defaults_of(JobConfig)["model"] | _MODEL,
        "platform": {"name": "cpu", "vendor": "cpu"},
        "backend": {"_target_": "primus_hydra.backends.torchtitan.adapter.TorchTitanAdapter", "name": "torchtitan"},
    }
    job, problems = build_job(tree)
    raise_all(problems)
    assert job is not None
    layout, problems = layout_of(job)
    raise_all(problems)
    assert layout is not None
    data = PreparedData(
        vocab_size=512,
        corpus_hash=None,
        tokens_dir=None,
        tokenizer_dir=None,
        documents=0,
        train_tokens=0,
        validation_tokens=0,
    )
    silence = _Silence()
    context = RankContext(
        rank=0,
        local_rank=0,
        world_size=1,
        local_world_size=1,
        attempt=1,
        restart=0,
        paths=RunPaths(Path("example")),
        layout=layout,
        data=data,
        resume_from=None,
        backend_version="0",
        metrics=silence,
        stop=silence,
        ledger=silence,
    )
    return translate(job, context)
