"""`model.parameters` follows the sizes that are overridden, and a total that is wrong is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.composed import Composed
from primus_hydra.config.count import parameter_count
from primus_hydra.errors import UserError

TOTAL = 8_030_261_248


def composed(*words: str, folder: Path | None = None) -> Composed:
    folders = () if folder is None else (folder,)
    return compose(Request(overrides=["platform=cpu", *words], config_dirs=folders))


def test_the_total_of_a_file_stands_where_nothing_is_overridden() -> None:
    assert composed("model=llama3_8b").job.model.parameters == TOTAL


def test_a_name_is_no_size() -> None:
    found = composed("model=llama3_8b", "model.name=mine")
    assert found.job.model.parameters == found.tree["model"]["parameters"] == TOTAL


def test_the_total_follows_a_size_on_the_command_line() -> None:
    found = composed("model=llama3_8b", "model.num_hidden_layers=4")
    counted = parameter_count(found.job.model)
    assert counted < TOTAL
    assert found.job.model.parameters == found.tree["model"]["parameters"] == counted
    assert "counted" in str(found.provenance["model.parameters"])


def test_the_total_follows_a_size_in_an_experiment(tmp_path: Path) -> None:
    text = "# @package _global_\ndefaults:\n  - override /model: llama3_8b\nmodel:\n  vocab_size: 64000\n"
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/small.yaml").write_text(text)
    found = composed("experiment=small", folder=tmp_path)
    assert found.job.model.parameters == TOTAL - 2 * 4096 * (128256 - 64000)


def test_a_total_that_its_own_file_got_wrong_is_refused_with_the_right_one(tmp_path: Path) -> None:
    sizes = "hidden_size: 64\nintermediate_size: 128\nnum_hidden_layers: 2\nnum_attention_heads: 4\nvocab_size: 256\n"
    (tmp_path / "model").mkdir()
    file = tmp_path / "model/mine.yaml"
    file.write_text(f"name: mine\n{sizes}max_position_embeddings: 512\nparameters: 1000\n")
    with pytest.raises(UserError) as caught:
        composed("model=mine", folder=tmp_path)
    (problem,) = caught.value.problems
    assert problem.what == "1000 is not the total of these sizes, which is 115008"
    assert problem.where == f"{file}:8"


def test_a_total_that_was_typed_wrong_is_refused() -> None:
    with pytest.raises(UserError, match="is not the total"):
        composed("model=llama3_8b", "model.parameters=7")


def test_a_model_without_a_vocabulary_has_no_total_to_check() -> None:
    assert composed("model=llama3_tiny").job.model.parameters is None
