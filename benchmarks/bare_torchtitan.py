"""The smallest torchtitan script for a configuration of ours: one process, torchtitan's own parts. See `step_time.py`.

    python benchmarks/bare_torchtitan.py FOLDER [OVERRIDE...]

It writes FOLDER/steps.json: seconds between two log lines of torchtitan's metrics processor.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from primus_hydra.config.build import to_tree
from primus_hydra.config.compose import Request, compose
from primus_hydra.config.layout import layout_of
from primus_hydra.data.corpus import open_corpus
from primus_hydra.data.prepare import prepare_data
from primus_hydra.data.problem_log import ProblemLog
from primus_hydra.patching import PatchContext, load_patches, run_patches
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.contracts import RankContext, StepMetrics


class _Nothing:
    """A run that records nothing and never stops."""

    def log(self, metrics: StepMetrics) -> None:
        """Forget it."""

    def agreed(self, step: int) -> bool:
        """Never stop."""
        return False

    def completed(self, step: int) -> None:
        """Forget it."""


def main(folder: Path, overrides: list[str]) -> None:
    """Train with torchtitan's own parts."""
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    job = compose(Request(overrides=overrides)).job
    layout, problems = layout_of(job)
    assert layout is not None, problems
    data = prepare_data(job, report=lambda _: None)
    nothing = _Nothing()
    context = RankContext(
        rank=0,
        local_rank=0,
        world_size=1,
        local_world_size=1,
        attempt=1,
        restart=0,
        paths=RunPaths(folder),
        layout=layout,
        data=data,
        resume_from=None,
        backend_version="0.3.0",
        metrics=nothing,
        stop=nothing,
        ledger=nothing,
    )
    patches = PatchContext(job=job, backend="torchtitan", backend_version="0.3.0", torch_version="2.14.1")
    load_patches("torchtitan")
    run_patches("before_import", patches)
    from primus_hydra.backends.torchtitan.native_0_3 import translate

    native = translate(job, context)
    run_patches("build_args", dataclasses.replace(patches, phase="build_args", native=native))
    config = _plain(native, _write_corpus(folder, job))
    _time_steps(folder)
    trainer = config.build()
    trainer.train()
    trainer.close()
    assert to_tree(job)["training"]["steps"] == trainer.step


def _plain(native: Any, corpus: Path) -> Any:
    """Return the same configuration with torchtitan's own trainer, data loader, metrics, checkpoint and validator."""
    from torchtitan.components.checkpointer import CheckpointManager
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.components.validate import Validator
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
    from torchtitan.trainer import Trainer

    values = {field.name: getattr(native, field.name) for field in dataclasses.fields(Trainer.Config)}
    values |= {
        "dataloader": HuggingFaceTextDataLoader.Config(dataset="c4_test", dataset_path=str(corpus)),
        "metrics": MetricsProcessor.Config(log_freq=native.metrics.log_freq, disable_color_printing=True),
        "checkpoint": CheckpointManager.Config(),
        "validator": Validator.Config(),
    }
    return Trainer.Config(**values)


def _write_corpus(folder: Path, job: Any) -> Path:
    """Write the documents as the JSON lines that torchtitan's loader reads."""
    corpus = folder / "corpus"
    corpus.mkdir()
    with (corpus / "data.json").open("w", encoding="utf-8") as file:
        for document in open_corpus(job.data).documents(ProblemLog()):
            file.write(json.dumps({"text": document}) + "\n")
    return corpus


def _time_steps(folder: Path) -> None:
    from torchtitan.components.metrics import MetricsProcessor

    original, times = MetricsProcessor.log, [time.perf_counter()]

    def log(self: Any, *values: Any, **named: Any) -> None:
        original(self, *values, **named)
        times.append(time.perf_counter())
        seconds = [after - before for before, after in itertools.pairwise(times)]
        (folder / "steps.json").write_text(json.dumps(seconds[1:]))

    MetricsProcessor.log = log


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
