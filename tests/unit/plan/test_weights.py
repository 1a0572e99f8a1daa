"""Weights taken one by one are the parameters that the configuration counts, on one rank and over all of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

import primus_hydra.conf
from primus_hydra.config.build import build
from primus_hydra.config.count import active_parameter_count, parameter_count
from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.plan.state import state_of, totals
from primus_hydra.plan.weights import model_total
from tests.unit.plan.settings import setting

FILES = sorted((Path(primus_hydra.conf.__file__).parent / "model").glob("*.yaml"))


def models() -> list[ModelConfig]:
    trees = [yaml.safe_load(file.read_text("utf-8")) for file in FILES]
    found = [build(ModelConfig, tree)[0] for tree in trees if "hidden_size" in tree and "defaults" not in tree]
    return [model for model in found if model is not None]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_weights_add_up_to_the_counted_parameters(model: ModelConfig) -> None:
    vocab = model.vocab_size or 4096
    alone = dataclasses.replace(setting("model=llama3_8b", "platform=h100"), model=model, vocab=vocab)

    assert model_total(model, vocab) == parameter_count(model, vocab)
    assert totals(alone) == (parameter_count(model, vocab), active_parameter_count(model, vocab))


def test_ranks_of_all_stages_hold_the_model_once_in_each_group() -> None:
    cut = setting("model=llama3_70b", "platform=h100", "parallel.tp=4", "parallel.pp=8", "launch.nodes=8",
                  "backend=megatron", "training.global_batch_size=128")  # fmt: skip
    model = cut.model
    norms = (2 * model.num_hidden_layers + 1) * model.hidden_size

    held = sum(state_of(cut, rank).held for rank in range(cut.pp))

    assert held * cut.tp == parameter_count(model) + norms * (cut.tp - 1), "norms are whole on every rank"


def test_optimizer_state_is_shared_as_sharding_says() -> None:
    words = ("model=llama3_8b", "platform=h100", "training.global_batch_size=64")
    total = parameter_count(setting(*words).model)
    full = state_of(setting(*words), 0)
    copies = state_of(setting(*words, "parallel.sharding=none"), 0)
    first = state_of(setting(*words, "backend=megatron"), 0)

    assert copies.weights == copies.gradients == 4 * total
    assert full.weights == pytest.approx(4 * total / 8, rel=1e-3)
    assert (first.weights, first.gradients) == (2 * total, 4 * total)
    assert first.optimizer == pytest.approx(12 * total / 8, rel=1e-6)
