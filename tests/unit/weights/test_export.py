from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from primus_hydra.weights.export import finish_export, partial_folder, plan_export, plan_files, start_export
from primus_hydra.weights.tensors import expected_tensors
from tests.support import make_job


def test_tensors_fill_files_in_order_up_to_the_limit() -> None:
    shapes = {"a": (10, 10), "b": (10, 5), "c": (30, 10), "d": (1,)}

    plan = plan_files(shapes, "float32", largest=600)

    assert plan.files == {
        "model-00001-of-00003.safetensors": ("a", "b"),
        "model-00002-of-00003.safetensors": ("c",),
        "model-00003-of-00003.safetensors": ("d",),
    }
    assert plan.total_bytes == 4 * 451
    assert plan.index()["weight_map"]["c"] == "model-00002-of-00003.safetensors"
    assert plan_files(shapes, "bfloat16", largest=1000).files == {"model.safetensors": ("a", "b", "c", "d")}


def test_a_large_model_is_spread_over_files_of_five_gigabytes() -> None:
    changes = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
    model = make_job({f"model.{name}": value for name, value in {**changes, "num_key_value_heads": 8}.items()}).model

    plan = plan_export(model, 128256, "bfloat16")

    assert plan.total_bytes == 2 * 8_030_261_248  # the published count of Llama 3 8B
    assert len(plan.files) == 4


@pytest.mark.parametrize("changes", [{}, {"architecture": "qwen3", "head_dim": 32}, {"tie_word_embeddings": True}])
def test_the_expected_tensors_are_those_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    model = make_job({f"model.{name}": value for name, value in changes.items()}).model
    plan = plan_export(model, 96, "float32")
    start_export(tmp_path / "export")
    finish_export(tmp_path / "export", plan, model=model, vocab_size=96, dtype="float32", tokenizer_dir=None)

    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path / "export"))

    assert {name: tuple(value.shape) for name, value in built.named_parameters()} == expected_tensors(model, 96)


def test_the_folder_gets_its_name_when_it_is_whole_and_replaces_an_older_one(tmp_path: Path) -> None:
    folder, model = tmp_path / "export", make_job().model
    folder.mkdir()
    (folder / "old").touch()
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    tokens = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {"<s>": 0, "</s>": 1, "a": 2}, "unk_token": "a"},
    }
    (tokenizer / "tokenizer.json").write_text(json.dumps(tokens))
    (tokenizer / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    (tokenizer / "model.safetensors").touch()
    plan = plan_files({"a": (10,), "b": (10,)}, "float32", largest=40)

    start_export(folder)
    assert partial_folder(folder).is_dir()
    assert (folder / "old").exists()
    finish_export(folder, plan, model=model, vocab_size=96, dtype="float32", tokenizer_dir=str(tokenizer))

    assert not partial_folder(folder).exists()
    assert {file.name for file in folder.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 1
    assert json.loads((folder / "config.json").read_text())["bos_token_id"] == 0
