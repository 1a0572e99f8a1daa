"""`model=hf`: any config.json of a known family becomes a model, and what no model here has is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_hydra import conf
from primus_hydra.config.compose import Request, compose
from primus_hydra.config.hf_families import HF_FAMILIES
from primus_hydra.config.hf_model import neutral_model
from primus_hydra.config.schema.model import ModelConfig, RopeScaling
from primus_hydra.errors import UserError

QWEN: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "use_sliding_window": False,
    "max_window_layers": 24,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
"""Qwen2.5-0.5B as published."""
SIZES = {name: QWEN[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size")}


def write(folder: Path, config: Mapping[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def model_of(*words: str) -> ModelConfig:
    return compose(Request(overrides=["platform=cpu", "model=hf", *words])).job.model


def problems_of(*words: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        model_of(*words)
    assert {problem.key for problem in caught.value.problems} == {"model.path"}
    return [problem.what for problem in caught.value.problems]


def test_a_folder_gives_the_model_that_a_file_of_ours_gives(tmp_path: Path) -> None:
    folder = write(tmp_path / "Qwen2.5 0.5B", QWEN)
    found = model_of(f"model.path='{folder}'")
    tree = yaml.safe_load((Path(conf.__file__).parent / "model/qwen2_5_0_5b.yaml").read_text())
    own = {key: value for key, value in tree.items() if key not in ("name", "parameters", "source")}
    assert {key: getattr(found, key) for key in own} == own
    assert (found.name, found.path, found.source) == ("Qwen2.5_0.5B", str(folder), str(folder / "config.json"))


def test_the_file_itself_may_be_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "q", QWEN)
    assert model_of(f"model.path={folder}/config.json").hidden_size == 896


def test_any_key_can_be_overridden(tmp_path: Path) -> None:
    folder = write(tmp_path / "q", QWEN)
    found = model_of(f"model.path={folder}", "model.num_hidden_layers=4", "model.rope_scaling.rope_type=linear")
    assert (found.num_hidden_layers, found.rope_scaling.rope_type) == (4, "linear")


def test_the_choice_takes_every_key_of_a_model_from_the_file() -> None:
    tree = yaml.safe_load((Path(conf.__file__).parent / "model/hf.yaml").read_text())
    own = {item.name for item in fields(ModelConfig)} - {"parameters"}
    assert set(tree) == own
    assert set(tree["rope_scaling"]) == {item.name for item in fields(RopeScaling)}
    for key in own - {"path", "rope_scaling"}:
        assert tree[key] == f"${{hf:{key}}}"


def test_a_folder_that_is_not_there_is_told_once(tmp_path: Path) -> None:
    assert problems_of(f"model.path={tmp_path}/none") == [f"there is no file {tmp_path}/none/config.json"]


def test_a_path_that_was_not_given_is_told_once() -> None:
    assert problems_of() == ["needs a value: it is marked ???"]
    assert problems_of("model.path=null") == ["model=hf reads it, and it is not set"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [("{", "cannot be read as JSON"), ("[]", "is not a JSON object"), ("{}", "it has no model_type")],
)
def test_a_file_that_describes_no_model_is_refused(tmp_path: Path, text: str, answer: str) -> None:
    (tmp_path / "config.json").write_text(text)
    (what,) = problems_of(f"model.path={tmp_path}")
    assert what.startswith(answer)


def test_a_family_that_is_not_known_is_refused_with_those_that_are() -> None:
    (problem,) = neutral_model({**QWEN, "model_type": "bloom"}, where="config.json").problems
    assert "bloom" in problem.what
    assert all(name in (problem.hint or "") for name in HF_FAMILIES)


@pytest.mark.parametrize(
    ("fields_there", "answer"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is gelu, and can only be silu"),
        ({"use_sliding_window": True}, "use_sliding_window is True, and can only be False"),
        ({"attention_dropout": 0.1}, "attention_dropout is 0.1, and can only be 0.0"),
        ({"logit_softcapping": 30.0}, "logit_softcapping=30.0 is not known here, and may change the network"),
        ({"quantization_config": {"bits": 4}}, "its weights are quantized (quantization_config)"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, and can only be 1"),
        ({"layer_types": ["sliding_attention"] * 24}, "layer_types has another pattern than the one of its family"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "rope_type is dynamic, and can be linear, llama3, yarn or none",
        ),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "long_factor": [1]}},
            "the rotary embedding has long_factor, which is not known here",
        ),
    ],
)
def test_what_no_model_here_has_is_refused_by_name(fields_there: dict[str, Any], answer: str) -> None:
    found = neutral_model({**QWEN, **fields_there}, where="config.json")
    assert answer in [problem.what for problem in found.problems]
    assert found.keys == {}


def test_all_that_is_wrong_is_told_at_once() -> None:
    config = {**QWEN, "hidden_act": "gelu", "vocab_size": None, "new_thing": 3}
    assert len(neutral_model(config, where="config.json").problems) == 3


def test_what_a_file_leaves_out_is_what_its_class_takes() -> None:
    sparse = {**SIZES, "model_type": "mixtral", "num_attention_heads": 16}
    keys = neutral_model(sparse, where="config.json").keys
    assert (keys["num_key_value_heads"], keys["head_dim"], keys["n_routed_experts"]) == (8, 56, 8)
    assert (keys["rope_theta"], keys["rms_norm_eps"], keys["norm_topk_prob"]) == (1e6, 1e-5, True)


def test_dense_layers_of_a_mixture_are_taken_where_they_come_first() -> None:
    moe = {**SIZES, "model_type": "qwen3_moe", "num_attention_heads": 16, "moe_intermediate_size": 64}
    first = neutral_model({**moe, "mlp_only_layers": [0, 1]}, where="config.json")
    later = neutral_model({**moe, "mlp_only_layers": [0, 5]}, where="config.json")
    assert first.keys["first_k_dense_replace"] == 2
    assert [problem.what for problem in later.problems] == ["mlp_only_layers is [0, 5], which are not the first layers"]


def test_a_temperature_given_as_a_factor_means_the_same_as_one_given_by_weights() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": 1.0}
    keys = neutral_model({**QWEN, "rope_scaling": scaling}, where="config.json").keys
    assert keys["rope_scaling.mscale"] == pytest.approx(0.0)


def test_a_greedy_choice_of_experts_is_not_limited_to_groups() -> None:
    latent = {**SIZES, "model_type": "deepseek_v2", "num_attention_heads": 16, "n_group": 8, "topk_group": 3}
    assert neutral_model(latent, where="").keys["topk_group"] == 8
    assert neutral_model({**latent, "topk_method": "group_limited_greedy"}, where="").keys["topk_group"] == 3
