"""Who wins: every layer of the composition against every weaker one."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.config.conftest import Compose, Write

LAYERS = (
    "backend",
    "model",
    "module",
    "module/_values",
    "data",
    "tokenizer",
    "platform",
    "network",
    "determinism",
    "parallel",
    "launch",
    "experiment",
)
"""Weakest first, as the architecture says; the schema's defaults are below all, the command line above all."""


def probe(layer: str, value: float) -> tuple[str, str]:
    """Return the file of a layer's option `probe`, which sets one key of the whole tree beside what the layer needs."""
    text = f"# @package _global_\noptimizer:\n  lr: {value}\n"
    needs = {
        "backend": "backend:\n  name: torchtitan\n"
        "  _target_: primus_hydra.backends.torchtitan.adapter.TorchTitanAdapter\n",
        "model": "model:\n  name: probe\n  hidden_size: 8\n  intermediate_size: 8\n  num_hidden_layers: 1\n"
        "  num_attention_heads: 1\n  max_position_embeddings: 8\n",
        "platform": "platform:\n  name: probe\n",
    }
    name = "pretrain/probe" if layer == "module/_values" else "pretrain" if layer == "module" else "probe"
    return f"{layer}/{name}.yaml", text + needs.get(layer, "")


def choose(layer: str) -> list[str]:
    """Return the overrides that take a layer's probe in."""
    if layer == "module":
        return []
    return ["model=probe"] if layer == "module/_values" else [f"{layer}=probe"]


@pytest.mark.parametrize(("weaker", "stronger"), itertools.pairwise(LAYERS))
def test_a_stronger_layer_wins_over_the_one_below_it(
    weaker: str, stronger: str, write: Write, composed: Compose
) -> None:
    for layer, value in ((weaker, 0.25), (stronger, 0.5)):
        write(*probe(layer, value))
    if "module/_values" in (weaker, stronger):
        write("model/probe.yaml", probe("model", 0.125)[1].replace("optimizer:\n  lr: 0.125\n", ""))
    overrides = list(dict.fromkeys(choose(weaker) + choose(stronger)))

    assert composed(*overrides).job.optimizer.lr == 0.5


def test_any_file_wins_over_the_schema_and_the_command_line_over_any_file(write: Write, composed: Compose) -> None:
    write("backend/probe.yaml", probe("backend", 0.25)[1].replace("lr:", "eps:"))
    write(*probe("experiment", 0.5))

    assert composed().job.optimizer.eps == 1e-8
    assert composed("backend=probe").job.optimizer.eps == 0.25
    assert composed("experiment=probe", "optimizer.lr=0.75").job.optimizer.lr == 0.75


def test_the_last_of_two_overrides_of_a_key_wins(composed: Compose) -> None:
    assert composed("optimizer.lr=0.1", "optimizer.lr=0.2").job.optimizer.lr == 0.2
