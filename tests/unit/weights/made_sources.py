"""Folders of weights as each program leaves them, told from their names alone: the files have no tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from primus_hydra.config.build import dump_job
from primus_hydra.run.atomic import write_json
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.paths import RunPaths
from tests.support import make_job


def make_checkpoint(folder: Path, *, megatron: bool = False, backend: str | None = None, step: int = 0) -> Path:
    """Make a checkpoint; with `backend` one of a run, with its manifest."""
    folder.mkdir(parents=True)
    (folder / ".metadata").write_bytes(b"torch")
    if megatron:
        (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')
    if backend is not None:
        write_manifest(folder, step, {"backend": backend})
    return folder


def make_run(folder: Path, backend: str, steps: tuple[int, ...], overrides: dict[str, Any] | None = None) -> RunPaths:
    """Make a run with checkpoints and the tokenizer that it used."""
    run = RunPaths(folder)
    run.attempt(1).spec.parent.mkdir(parents=True)
    run.config.write_text(dump_job(make_job({"model.vocab_size": 96, **(overrides or {})})))
    for step in steps:
        make_checkpoint(run.checkpoint(step), megatron=backend.startswith("megatron"), backend=backend, step=step)
    run.checkpoints.mkdir(exist_ok=True)
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    write_json(run.attempt(1).spec, {"data": {"tokenizer_dir": str(tokenizer)}})
    return run


def make_converted(folder: Path, source: Path, model: dict[str, Any]) -> Path:
    """Make what a conversion from a Hugging Face folder leaves."""
    make_checkpoint(folder, megatron=True)
    task = {"source": str(source), "source_kind": "hf", "model": model}
    (folder / "primus_conversion.json").write_text(json.dumps({"format": 1, "task": task, "files": {}}))
    return folder
