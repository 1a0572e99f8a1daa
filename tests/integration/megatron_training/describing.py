"""What upstream makes of its arguments beside what our loop builds from the same job: the fields that differ."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from tests.integration.megatron_training.driver import Result, Scenario, context_of
from tests.integration.megatron_training.words import UPSTREAM
from tests.support import make_job
from tests.unit.backends.megatron.jobs import LATENT, V3

YARN = {
    "model.rope_scaling.rope_type": "yarn",
    "model.rope_scaling.factor": 4.0,
    "model.rope_scaling.original_max_position_embeddings": 128,
    # No whole number, as upstream's argument wants it.
    "model.rope_theta": 12345.5,
}
LLAMA3 = {
    "model.rope_scaling.rope_type": "llama3",
    "model.rope_scaling.factor": 8.0,
    "model.rope_scaling.original_max_position_embeddings": 8192,
}
JOBS: dict[str, dict[str, Any]] = {
    "llama, full recompute, bfloat16": {**LLAMA3, "recompute.mode": "full", "precision.compute": "bfloat16"},
    "llama, selective recompute, float16": {"recompute.mode": "selective", "precision.compute": "float16"},
    "qwen3": {"model.architecture": "qwen3", "model.head_dim": 32, "model.tie_word_embeddings": True},
    "yarn": YARN,
    "deepseek_v2": {**LATENT, **YARN},
    "deepseek_v3": V3,
}
_DATA = {
    "vocab_size": 512,
    "corpus_hash": None,
    "tokens_dir": None,
    "tokenizer_dir": None,
    "documents": 0,
    "train_tokens": 0,
    "validation_tokens": 0,
}


def describe(folder: Path) -> None:
    """Write the schema of upstream's parser, and for each job the fields that differ, to FOLDER/described.json."""
    from primus_hydra.backends.megatron.training.schema.generate import render, schema_of_upstream
    from primus_hydra.backends.megatron.training.versions import find_training

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}
    schema = render(schema_of_upstream(find_training(None, os.environ).version))
    models = {name: _differences(overrides) for name, overrides in JOBS.items()}
    (folder / "described.json").write_text(json.dumps({"schema": schema, "models": models}), encoding="utf-8")


def _differences(overrides: dict[str, Any]) -> dict[str, list[str]]:
    from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config

    from primus_hydra.backends.megatron.native import neutral_sections
    from primus_hydra.backends.megatron.training.limits import core_job
    from primus_hydra.backends.megatron.training.native import upstream_config

    scenario = Scenario(overrides={**UPSTREAM, "data.kind": "mock", **overrides}, run_dir="unused", data=_DATA)
    job = make_job(scenario.overrides)
    context = context_of(scenario, job, Result(), 0)
    native, ours = upstream_config(job, context), neutral_sections(core_job(job), context)
    theirs = {
        "transformer": native.transformer,
        "optimizer": get_megatron_optimizer_config(native.args)[0],
        "ddp": get_megatron_ddp_config(native.args),
    }
    return {name: _unequal(ours[name][0](**ours[name][1]), built) for name, built in theirs.items()}


def _unequal(ours: Any, theirs: Any) -> list[str]:
    assert type(ours) is type(theirs)
    names = [field.name for field in dataclasses.fields(ours) if not field.name.endswith("init_method")]
    return [name for name in names if repr(getattr(ours, name)) != repr(getattr(theirs, name))]
