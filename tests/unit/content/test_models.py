"""Every shipped model says what it is, and its parameters are those of the published architecture."""

from __future__ import annotations

import dataclasses
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_hydra import conf
from primus_hydra.config.build import build
from primus_hydra.config.count import active_parameter_count, parameter_count
from primus_hydra.config.schema import ModelConfig
from primus_hydra.errors import UserError

FILES = sorted((Path(conf.__file__).parent / "model").glob("*.yaml"))
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


MLA = {"num_key_value_heads": 6, "kv_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 4, "v_head_dim": 14}
MOE = {
    "n_routed_experts": 8,
    "n_shared_experts": 3,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 30,
    "first_k_dense_replace": 1,
}


def test_the_first_models_are_here():
    wanted = "llama3_tiny llama3_8b llama3_70b llama3_1_8b qwen3_0_6b qwen3_8b deepseek_v2_lite"
    assert set(wanted.split()) <= set(NAMES)


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
        small("qwen3", head_dim=16),
        small("qwen3", head_dim=16, attention_bias=True, tie_word_embeddings=True),
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
    family = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "deepseek_v2": (transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM),
        "deepseek_v3": (transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM),
    }
    config_class, model_class = family[config.architecture]
    with torch.device("meta"):
        built = model_class(config_class(**hugging_face_keys(config, vocabulary)))
    return sum(parameter.numel() for parameter in built.parameters())


def hugging_face_keys(config: ModelConfig, vocabulary: int | None) -> dict[str, Any]:
    """Our keys are Hugging Face's: give all that its class knows, and the two whose null it does not resolve itself."""
    ours = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    for foreign in ("name", "architecture", "parameters", "source", "rope_scaling", "scoring_func", "aux_loss_alpha"):
        del ours[foreign]
    ours |= {"vocab_size": vocabulary, "num_key_value_heads": config.kv_heads, "head_dim": config.head_width}
    if not config.architecture.startswith("deepseek"):
        ours = {
            name: value for name, value in ours.items() if name not in (*MLA, *MOE) or name == "num_key_value_heads"
        }
    elif config.n_routed_experts is None:
        raise AssertionError("transformers has no dense DeepSeek")
    return ours
