"""config.json in both directions, against `transformers` itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from primus_hydra.config.schema.model import ModelConfig
from primus_hydra.weights.hf_config import differences, hf_config
from tests.support import make_job
from tests.unit.weights.families import dotted

ROPES: dict[str, dict[str, Any]] = {
    "none": {},
    "linear": {"rope_type": "linear", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7},
}


def model(**changes: Any) -> ModelConfig:
    return make_job({f"model.{name}": value for name, value in changes.items()}).model


def written(subject: ModelConfig) -> dict[str, Any]:
    return hf_config(subject, vocab_size=96, bos_id=1, eos_id=2, dtype="bfloat16")


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_transformers_reads_back_the_same_model(architecture: str, rope: dict[str, Any], tmp_path: Path) -> None:
    subject = model(architecture=architecture, rope_scaling=rope, head_dim=32, tie_word_embeddings=True)
    (tmp_path / "config.json").write_text(json.dumps(written(subject)))

    read = AutoConfig.from_pretrained(tmp_path)

    names = ("hidden_size", "intermediate_size", "num_key_value_heads", "head_dim", "rms_norm_eps", "initializer_range")
    assert [getattr(read, name) for name in names] == [getattr(subject, name) for name in names]
    assert (read.vocab_size, read.bos_token_id, read.eos_token_id, str(read.dtype)) == (96, 1, 2, "torch.bfloat16")
    assert read.rope_parameters["rope_theta"] == subject.rope_theta
    assert read.rope_parameters["rope_type"] == rope.get("rope_type", "default")
    assert read.rope_parameters.get("factor") == rope.get("factor")
    # The form in which transformers 5 saves it is read as well.
    assert differences(json.loads(read.to_json_string(use_diff=False)), subject, 96) == []


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
def test_what_is_written_does_not_differ_from_its_model(rope: dict[str, Any]) -> None:
    subject = model(rope_scaling=rope)

    assert differences(written(subject), subject, 96) == []


def test_a_file_of_defaults_means_what_transformers_takes_it_for() -> None:
    sparse = {name: written(model())[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    config = {**sparse, "model_type": "llama", "num_attention_heads": 4, "vocab_size": 96}

    found = {item.field: item.theirs for item in differences(config, model(), 96)}

    # The job's model has two key heads, another epsilon and another base.
    assert found == {"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("rope", "change", "field"),
    [
        ("llama3", {"factor": 4.0}, "factor"),
        ("llama3", {"high_freq_factor": 8.0}, "high_freq_factor"),
        ("yarn", {"original_max_position_embeddings": 32}, "original_max_position_embeddings"),
        ("yarn", {"mscale": 1.0}, "attention_factor"),
        ("yarn", {"beta_fast": 16.0}, "beta_fast"),
    ],
)
def test_each_number_of_the_position_scaling_counts(rope: str, change: dict[str, Any], field: str) -> None:
    here = model(rope_scaling=ROPES[rope] | change)

    assert [item.field for item in differences(written(model(rope_scaling=ROPES[rope])), here, 96)] == [field]


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_the_experts_of_qwen3_moe_are_read_under_either_name(name: str) -> None:
    subject = make_job(dotted("qwen3_moe")).model
    config = hf_config(subject, vocab_size=96, bos_id=None, eos_id=None, dtype="float32")
    config[name] = config.pop("num_experts")

    assert differences(config, subject, 96) == []
    assert [item.field for item in differences({**config, name: 8}, subject, 96)] == ["num_experts"]


def test_deepseek_v3_without_groups_says_that_all_experts_are_one_group() -> None:
    subject = make_job({**dotted("deepseek_v3"), "model.n_group": None, "model.topk_group": None}).model
    config = hf_config(subject, vocab_size=96, bos_id=None, eos_id=None, dtype="float32")

    assert (config["n_group"], config["topk_group"]) == (1, 1)
    assert differences(config, subject, 96) == []
