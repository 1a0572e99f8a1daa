"""A torchtitan model has the parameters that the neutral configuration promises, and torchtitan's own initialisers."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch
from torchtitan.models.common import RMSNorm
from torchtitan.models.llama3 import llama3_configs
from torchtitan.models.qwen3 import qwen3_configs

from primus_hydra.backends.torchtitan.models.limits import model_problems
from primus_hydra.backends.torchtitan.models.spec import model_spec
from primus_hydra.config.count import parameter_count
from primus_hydra.config.schema.parallel import ParallelConfig
from tests.unit.backends.torchtitan.titan_models import LATENT, SHIPPED, neutral, on_meta, shallow, shipped


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_has_the_counted_parameters(name: str) -> None:
    model = shallow(name)
    vocab_size = model.vocab_size or 4096
    built = on_meta(model_spec(model, vocab_size=vocab_size, seq_length=128, global_batch_size=8))
    assert sum(p.numel() for p in built.parameters()) == parameter_count(model, vocab_size)


@pytest.mark.parametrize(
    "values",
    [
        {"q_lora_rank": 24},
        {"architecture": "deepseek_v3", "scoring_func": "sigmoid", "n_shared_experts": 0},
        {"n_routed_experts": None, "n_shared_experts": None, "num_experts_per_tok": None, "first_k_dense_replace": 0},
        {"first_k_dense_replace": 2},
    ],
    ids=["query_latent", "no_shared_expert", "no_experts", "all_dense"],
)
def test_any_deepseek_shape_has_the_counted_parameters(values: dict[str, Any]) -> None:
    model = neutral(LATENT, **values)
    built = on_meta(model_spec(model, vocab_size=128, seq_length=64))
    assert sum(p.numel() for p in built.parameters()) == parameter_count(model)


def plain(config: Any) -> str:
    """Text of a configuration, without the addresses of its initialisers; 5.0 and 5 read the same."""
    return re.sub(r" at 0x[0-9a-f]+|(?<=\d)\.0(?=[,)])", "", repr(config))


def test_llama3_1_8b_is_torchtitans_own_8b() -> None:
    ours = model_spec(shipped("llama3_1_8b"), vocab_size=128256, seq_length=131072).model
    assert plain(ours) == plain(llama3_configs["8B"](attn_backend="flex"))


@pytest.mark.parametrize(("name", "flavour"), [("qwen3_0_6b", "0.6B"), ("qwen3_8b", "8B")])
def test_a_published_qwen3_is_torchtitans_own_flavour(name: str, flavour: str) -> None:
    ours = model_spec(shipped(name), vocab_size=151936, seq_length=40960).model
    assert plain(ours) == plain(qwen3_configs[flavour](attn_backend="flex"))


@pytest.mark.parametrize(
    ("name", "flavour", "theta"), [("qwen3_30b_a3b", "30B-A3B", 1e6), ("qwen3_235b_a22b", "235B-A22B", 5e6)]
)
def test_a_published_mixture_is_torchtitans_own_flavour_without_its_balancing_bias(
    name: str, flavour: str, theta: float
) -> None:
    theirs = qwen3_configs[flavour](attn_backend="flex")
    for layer in theirs.layers:
        layer.moe.load_balance_coeff = None
    model = dataclasses.replace(shipped(name), rope_theta=theta, max_position_embeddings=262144)
    ours = model_spec(model, vocab_size=151936, seq_length=theirs.layers[0].attention.rope.max_seq_len).model
    assert plain(ours) == plain(theirs)


@pytest.mark.parametrize(("name", "flavour"), [("llama3_2_1b", "1B"), ("llama3_2_3b", "3B")])
def test_a_published_llama_has_the_sizes_of_torchtitans_flavour(name: str, flavour: str) -> None:
    ours = on_meta(model_spec(shipped(name), vocab_size=128256, seq_length=131072))
    with torch.device("meta"):
        theirs = llama3_configs[flavour](attn_backend="flex").build()
    sizes = {key: value.shape for key, value in ours.named_parameters()}
    assert sizes == {key: value.shape for key, value in theirs.named_parameters()}


@pytest.mark.parametrize("name", ["gpt_oss_20b", "gpt_oss_120b", "llama4_17b_16e", "llama4_17b_128e"])
def test_a_shipped_model_that_torchtitan_lacks_is_refused_with_the_reason_and_the_nearest(name: str) -> None:
    problems = model_problems(shipped(name), ParallelConfig())
    refused = next(problem for problem in problems if problem.key == "model.architecture")
    assert "torchtitan" in refused.what
    assert "mixtral" in (refused.hint or "")


@pytest.mark.parametrize("model", [neutral(), neutral(architecture="qwen3"), neutral(LATENT, q_lora_rank=24)])
def test_every_norm_has_the_models_epsilon(model: Any) -> None:
    chosen = neutral({**model.__dict__, "rope_scaling": {}}, rms_norm_eps=0.125)
    config = model_spec(chosen, vocab_size=128, seq_length=64).model
    norms = [norm for _, norm, _, _ in config.traverse(RMSNorm.Config)]
    assert len(norms) > 2 * model.num_hidden_layers
    assert {norm.eps for norm in norms} == {0.125}


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_the_initializer_range_is_the_spread_of_fresh_weights(architecture: str) -> None:
    model = neutral(architecture=architecture, initializer_range=0.5, hidden_size=128, num_attention_heads=8)
    built = model_spec(model, vocab_size=128, seq_length=64).model.build()
    with torch.no_grad():
        built.init_weights()
    spread = built.layers["0"].feed_forward.w1.weight.std().item()
    assert spread == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("model", [neutral(), neutral(architecture="qwen3"), neutral(LATENT)])
def test_no_weight_is_left_to_a_default_initialiser(model: Any) -> None:
    """The patch for equal weights in every layout mends declared initialisers only."""
    built = on_meta(model_spec(model, vocab_size=128, seq_length=64))
    for name, module in built.named_modules():
        names = [key for key, _ in module.named_parameters(recurse=False)]
        assert set(names) <= set(module._param_init or {}), name
