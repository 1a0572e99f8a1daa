"""Helpers that many tests share: a small valid job without Hydra."""

from __future__ import annotations

import copy
from typing import Any

from primus_hydra.config.build import build_job, defaults_of
from primus_hydra.config.schema import JobConfig

TINY: dict[str, Any] = {
    "model": {
        "name": "llama3_tiny",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rope_theta": 500000.0,
    },
    "training": {"steps": 4, "global_batch_size": 4, "micro_batch_size": 2, "seq_length": 64},
    "precision": {"compute": "float32"},
    "platform": {"name": "cpu", "vendor": "cpu"},
    "backend": {"_target_": "primus_hydra.backends.torchtitan.adapter.TorchTitanAdapter", "name": "torchtitan"},
    "task": {"_target_": "primus_hydra.tasks.train.Train"},
}


def job_tree(overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the tree of a tiny job; `overrides` are dotted keys, as on the command line."""
    tree = defaults_of(JobConfig)
    for name, values in TINY.items():
        tree[name] = {**tree[name], **copy.deepcopy(values)} if isinstance(tree[name], dict) else values
    for dotted, value in (overrides or {}).items():
        node = tree
        *parents, leaf = dotted.split(".")
        for parent in parents:
            node = node[parent]
        node[leaf] = value
    return tree


def make_job(overrides: dict[str, Any] | None = None) -> JobConfig:
    """Build a tiny valid job; raises AssertionError with the problems if it is not valid."""
    job, problems = build_job(job_tree(overrides))
    assert job is not None, problems
    return job
