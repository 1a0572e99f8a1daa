"""A tiny random model on disk, in Hugging Face's layout, made without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from primus_hydra.config.schema import JobConfig
from primus_hydra.weights.hf_config import hf_config
from primus_hydra.weights.tensors import expected_tensors
from tests.support import make_job

VOCAB = 96


def job_from(folder: Path, **changes: Any) -> JobConfig:
    """Return a job that starts from a folder; `changes` are dotted keys with `__` for the dot."""
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return make_job({"init_from": f"hf:{folder}", "model.vocab_size": VOCAB, **dotted})


def write_folder(folder: Path, job: JobConfig, *, files: int = 1) -> Path:
    """Write the weights of a job's model into one file, or several with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    shapes = expected_tensors(job.model, VOCAB)
    tensors = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    config = hf_config(job.model, vocab_size=VOCAB, bos_id=None, eos_id=None, dtype="float32")
    (folder / "config.json").write_text(json.dumps(config))
    if files == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    parts = {f"part-{number}.safetensors": list(tensors)[number::files] for number in range(files)}
    for file, names in parts.items():
        save_file({name: tensors[name] for name in names}, folder / file)
    places = {name: file for file, names in parts.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def change_config(folder: Path, **fields: Any) -> None:
    """Change fields of config.json; None takes one out."""
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
