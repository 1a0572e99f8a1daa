from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from primus_hydra.weights.export import finish_export, partial_folder, plan_export, plan_files, start_export
from primus_hydra.weights.folder import read_folder
from primus_hydra.weights.hf_config import differences
from primus_hydra.weights.tensors import expected_tensors, stays_float32
from tests.support import make_job
from tests.unit.weights.families import FAMILIES, dotted


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


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expected_tensors_are_those_that_transformers_saves(family: str, tmp_path: Path) -> None:
    model = make_job(dotted(family)).model
    plan = plan_export(model, 96, "bfloat16")
    start_export(tmp_path / "export")
    finish_export(tmp_path / "export", plan, model=model, vocab_size=96, dtype="bfloat16", tokenizer_dir=None)

    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path / "export")).save_pretrained(tmp_path / "own")

    saved = read_folder(tmp_path / "own")
    assert {name: info.shape for name, info in saved.tensors.items()} == expected_tensors(model, 96)
    assert differences(saved.config, model, 96) == []
    assert [name for name in saved.tensors if stays_float32(name)] == [
        name for name in saved.tensors if name.endswith("correction_bias")
    ]


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of three words."""
    folder.mkdir()
    vocabulary = {"<s>": 0, "</s>": 1, "a": 2}
    tokens = {"version": "1.0", "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')


def test_how_a_model_generates_comes_with_the_tokenizer_where_it_is_said(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer"
    write_tokenizer(tokenizer)
    said = {"eos_token_id": [1, 2], "temperature": 0.6}
    (tokenizer / "generation_config.json").write_text(json.dumps(said))
    plan = plan_files({"a": (10,)}, "float32")
    start_export(tmp_path / "export")
    model = make_job().model
    finish_export(tmp_path / "export", plan, model=model, vocab_size=96, dtype="float32", tokenizer_dir=str(tokenizer))

    assert json.loads((tmp_path / "export" / "generation_config.json").read_text()) == said


def test_the_folder_gets_its_name_when_it_is_whole_and_replaces_an_older_one(tmp_path: Path) -> None:
    folder, model = tmp_path / "export", make_job().model
    folder.mkdir()
    (folder / "old").touch()
    tokenizer = tmp_path / "tokenizer"
    write_tokenizer(tokenizer)
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
