"""Groups and experiments of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.errors import UserError
from tests.unit.config.conftest import Compose, Write

MODEL = """\
name: mine
hidden_size: 8
intermediate_size: 16
num_hidden_layers: 1
num_attention_heads: 2
max_position_embeddings: 8
"""


def test_a_users_file_wins_over_ours_of_the_same_name(write: Write, composed: Compose) -> None:
    write("model/llama3_tiny.yaml", MODEL)

    assert composed().job.model.name == "mine"


def test_a_users_model_may_stand_on_one_of_ours(write: Write, composed: Compose) -> None:
    write("model/mine.yaml", "defaults:\n  - /model/llama3_8b@_here_\n  - _self_\nname: mine\nnum_hidden_layers: 4\n")

    model = composed("model=mine").job.model

    assert (model.name, model.num_hidden_layers, model.hidden_size) == ("mine", 4, 4096)


def test_an_experiment_binds_choices_together(write: Write, composed: Compose) -> None:
    write(
        "experiment/big.yaml",
        "# @package _global_\ndefaults:\n  - override /model: llama3_8b\n  - override /tokenizer: hf\n"
        "optimizer:\n  lr: 1e-5\n",
    )

    job = composed("experiment=big").job

    assert (job.model.name, job.tokenizer.kind, job.optimizer.lr) == ("llama3_8b", "hf", 1e-5)


def test_an_experiment_may_be_given_by_path(tmp_path: Path, composed: Compose) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("defaults:\n  - override /model: qwen3_0_6b\ntraining:\n  steps: 7\n")

    job = composed(f"experiment={file}").job

    assert (job.model.name, job.training.steps) == ("qwen3_0_6b", 7)


def test_an_experiment_follows_the_models_own_values(composed: Compose, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("defaults:\n  - override /model: llama3_8b\n")

    assert composed(f"experiment={file}").job.training.seq_length == 8192


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a: [1", "not valid YAML"),
        ("optimizer:\n  lrr: 3\n", "optimizer.lrr: there is no such key"),
    ],
)
def test_a_bad_experiment_file_is_named(text: str, said: str, tmp_path: Path, composed: Compose) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)

    with pytest.raises(UserError) as caught:
        composed(f"experiment={file}")

    assert said in str(caught.value)
    assert "bad.yaml" in str(caught.value)


def test_a_missing_experiment_file_is_named(composed: Compose) -> None:
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        composed("experiment=nowhere.yaml")


def test_a_bad_key_in_a_users_group_file_shows_its_line(write: Write, composed: Compose) -> None:
    file = write("model/mine.yaml", MODEL + "num_hidden_layer: 3\n")

    with pytest.raises(UserError) as caught:
        composed("model=mine")

    assert f"{file}:7" in str(caught.value)
    assert "did you mean model.num_hidden_layers" in str(caught.value)


def test_package_headers_stand_on_the_first_line_where_hydra_reads_them() -> None:
    conf = Path(__file__).parents[3] / "conf"
    late = [
        str(file.relative_to(conf))
        for file in conf.rglob("*.yaml")
        if any(line.startswith("# @package") for line in file.read_text().splitlines()[1:])
    ]

    assert late == []


def test_the_proxy_that_ships_is_the_large_model_with_fewer_layers(composed: Compose) -> None:
    proxy, whole = composed("experiment=llama3_8b_proxy").job.model, composed("model=llama3_8b").job.model

    assert (proxy.num_hidden_layers, proxy.hidden_size, proxy.vocab_size) == (4, whole.hidden_size, whole.vocab_size)
    assert proxy.parameters == 1_923_125_248
