"""Every shipped model says what it is, and its parameters are those of the published architecture."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_hydra import conf
from primus_hydra.config.architecture import architecture_problems
from primus_hydra.config.build import build
from primus_hydra.config.count import active_parameter_count, parameter_count
from primus_hydra.config.hf_model import neutral_model
from primus_hydra.config.schema import ModelConfig
from primus_hydra.errors import UserError
from primus_hydra.weights.hf_config import hf_config

ANY = "hf"
"""The choice that reads its sizes from a folder."""
FILES = sorted(file for file in (Path(conf.__file__).parent / "model").glob("*.yaml") if file.stem != ANY)
NAMES = [file.stem for file in FILES]
TINY_VOCABULARY = 4096


@cache
def model(name: str) -> ModelConfig:
    tree = yaml.safe_load((Path(conf.__file__).parent / f"model/{name}.yaml").read_text())
    config, problems = build(ModelConfig, tree, prefix="model")
    assert config is not None, problems
    return config


def small(architecture: str, **changes: Any) -> ModelConfig:
    """A model of odd sizes, so that no two of them can be mixed up."""
    sizes: dict[str, Any] = {
        "name": "small",
        "architecture": architecture,
        "hidden_size": 48,
        "intermediate_size": 112,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "vocab_size": 501,
        "max_position_embeddings": 64,
    }
    return ModelConfig(**{**sizes, **changes})


ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2}
LLAMA4 = {
    "moe_intermediate_size": 30,
    "n_shared_experts": 1,
    "scoring_func": "sigmoid",
    "attention_chunk_size": 8,
    "no_rope_layer_interval": 2,
}
MLA = {"num_key_value_heads": 6, "kv_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 4, "v_head_dim": 14}
MOE = {
    "n_routed_experts": 8,
    "n_shared_experts": 3,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 30,
    "first_k_dense_replace": 1,
}


def test_the_models_of_the_field_are_here():
    wanted = """llama3_tiny llama2_7b llama2_13b llama2_70b llama3_8b llama3_70b llama3_1_8b llama3_1_70b llama3_1_405b
        llama3_2_1b llama3_2_3b llama3_3_70b llama4_17b_16e llama4_17b_128e qwen2_5_0_5b qwen2_5_1_5b qwen2_5_3b
        qwen2_5_7b qwen2_5_14b qwen2_5_32b qwen2_5_72b qwen3_0_6b qwen3_1_7b qwen3_4b qwen3_8b qwen3_14b qwen3_32b
        qwen3_30b_a3b qwen3_235b_a22b mixtral_8x7b mixtral_8x22b deepseek_v2 deepseek_v2_lite deepseek_v3 gpt_oss_20b
        gpt_oss_120b"""
    assert set(wanted.split()) == set(NAMES)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_model_file_says_what_it_is_for_and_where_its_numbers_come_from(file):
    first = file.read_text().splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith(".")
    assert model(file.stem).name == file.stem
    assert model(file.stem).source


@pytest.mark.parametrize("name", NAMES)
def test_the_parameters_line_is_the_count(name):
    config = model(name)
    if config.vocab_size is None:  # the total follows from the tokenizer, so the file cannot state it
        assert config.parameters is None
    else:
        assert config.parameters == parameter_count(config)


def test_the_tiny_model_has_about_five_million_parameters():
    assert parameter_count(model("llama3_tiny"), TINY_VOCABULARY) == 5_245_184


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_model_contradicts_nothing(name):
    assert architecture_problems(model(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_model_survives_the_way_through_a_config_json(name):
    config = model(name)
    written = hf_config(config, vocab_size=config.vocab_size or TINY_VOCABULARY, bos_id=1, eos_id=2, dtype="bfloat16")
    found = neutral_model(written, where="config.json")
    assert found.problems == ()
    resolved = {
        "vocab_size": TINY_VOCABULARY,
        "head_dim": config.head_width,
        "num_key_value_heads": config.kv_heads,
    }
    for key, value in found.keys.items():
        node, _, leaf = key.rpartition(".")
        ours = getattr(config.rope_scaling if node else config, leaf)
        expected = resolved.get(key) if ours is None else ours
        assert value == (pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected), key


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_model_has_as_many_parameters_as_transformers_builds(name):
    config = model(name)
    vocabulary = config.vocab_size or TINY_VOCABULARY
    assert parameter_count(config, vocabulary) == transformers_count(config, vocabulary)


@pytest.mark.parametrize(
    "config",
    [
        small("llama"),
        small("llama", tie_word_embeddings=True, attention_bias=True),
        small("llama", num_key_value_heads=None, head_dim=10),
        small("qwen2"),
        small("qwen2", head_dim=10, tie_word_embeddings=True),
        small("qwen3", head_dim=16),
        small("qwen3", head_dim=16, attention_bias=True, tie_word_embeddings=True),
        small("qwen3_moe", head_dim=16, **ROUTED, moe_intermediate_size=30, first_k_dense_replace=1),
        small("qwen3_moe", **ROUTED, moe_intermediate_size=30, interleave_moe_layer_step=2, attention_bias=True),
        small("mixtral", **ROUTED, norm_topk_prob=True, head_dim=10),
        small("gpt_oss", **ROUTED, norm_topk_prob=True, head_dim=16, swiglu_limit=7.0, attention_bias=True),
        small("gpt_oss", **ROUTED, norm_topk_prob=True, head_dim=16, swiglu_limit=7.0, sliding_window=8),
        small("llama4_text", **ROUTED, **LLAMA4, head_dim=16, interleave_moe_layer_step=2),
        small("llama4_text", **ROUTED, **LLAMA4, head_dim=16, attention_bias=True, use_qk_norm=True),
        small("deepseek_v2", **MLA, **MOE),
        small("deepseek_v2", **MLA, **MOE, q_lora_rank=18, attention_bias=True),
        small("deepseek_v2", **MLA, **{**MOE, "first_k_dense_replace": 9}),
        small("deepseek_v3", **MLA, **MOE, q_lora_rank=18, n_group=2, topk_group=1),
        small("deepseek_v3", **MLA, **MOE, attention_bias=True, tie_word_embeddings=True, n_group=2, topk_group=1),
    ],
    ids=lambda config: config.architecture,
)
def test_every_shape_of_a_family_counts_as_transformers_builds_it(config):
    assert parameter_count(config) == transformers_count(config, config.vocab_size)


def test_a_given_vocabulary_wins_over_the_models():
    config = small("llama")
    assert parameter_count(config, 502) - parameter_count(config) == 2 * config.hidden_size


def test_a_token_meets_its_own_experts_only():
    config = small("deepseek_v2", **MLA, **MOE)
    idle = MOE["n_routed_experts"] - MOE["num_experts_per_tok"]
    per_expert = 3 * config.hidden_size * MOE["moe_intermediate_size"]
    assert parameter_count(config) - active_parameter_count(config) == 2 * idle * per_expert  # two MoE layers


def test_every_parameter_of_a_dense_model_is_active():
    assert active_parameter_count(small("qwen3")) == parameter_count(small("qwen3"))


def test_a_count_without_a_vocabulary_is_refused():
    with pytest.raises(ValueError, match="vocab_size"):
        parameter_count(small("llama", vocab_size=None))


def test_every_missing_key_of_a_family_is_named():
    with pytest.raises(UserError) as caught:
        parameter_count(small("deepseek_v2"))
    assert {problem.key for problem in caught.value.problems} == {
        "model.kv_lora_rank",
        "model.qk_nope_head_dim",
        "model.qk_rope_head_dim",
        "model.v_head_dim",
    }


def test_experts_in_a_family_without_them_are_refused():
    with pytest.raises(UserError, match="no experts"):
        parameter_count(small("llama", **MOE))


def transformers_count(config: ModelConfig, vocabulary: int | None) -> int:
    """Build the model of `transformers` without memory, and count its parameters."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    assert vocabulary is not None
    fields = hf_config(config, vocab_size=vocabulary, bos_id=None, eos_id=None, dtype="float32")
    published = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(published)
    assert type(built).__name__ == fields["architectures"][0]
    return sum(parameter.numel() for parameter in built.parameters())
