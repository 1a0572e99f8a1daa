"""Every value tells where it came from."""

from __future__ import annotations

from pathlib import Path

from primus_hydra.config.provenance import Source
from tests.unit.config.conftest import Compose, Write


def source(value: object) -> Source:
    assert isinstance(value, Source)
    return value


def test_each_layer_is_named_with_its_line_or_position(composed: Compose, write: Write) -> None:
    file = write("tokenizer/mine.yaml", "# A tokenizer of mine.\nkind: bpe\nvocab_size: 777\n")

    found = composed("tokenizer=mine", "optimizer.lr=1e-4").provenance

    assert source(found["tokenizer.vocab_size"]).file == str(file)
    assert source(found["tokenizer.vocab_size"]).line == 3
    assert source(found["optimizer.lr"]).text == "override 3: optimizer.lr=1e-4"
    assert source(found["optimizer.beta1"]).kind == "schema"
    assert source(found["training.steps"]).text.startswith("module/_values/pretrain/llama3_tiny.yaml:")


def test_a_value_of_an_experiment_file_points_into_it(composed: Compose, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("optimizer:\n  lr: 1e-4\n  beta1: 0.8\n")

    found = composed(f"experiment={file}", "optimizer.beta1=0.7").provenance

    assert source(found["optimizer.lr"]).text == f"{file}:2"
    assert source(found["optimizer.beta1"]).kind == "override"
