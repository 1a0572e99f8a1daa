from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from primus_hydra.errors import UserError
from primus_hydra.weights.check import export_problems, hf_problems, open_hf
from tests.support import make_job
from tests.unit.weights.families import MLA
from tests.unit.weights.model_folder import VOCAB, change_config, job_from, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "model", job_from(tmp_path))


def answers(folder: Path, **changes: Any) -> list[str]:
    """Return what is said against a folder."""
    problems = hf_problems(job_from(folder, **changes), VOCAB)
    assert {problem.key for problem in problems} <= {"init_from"}
    return [problem.what for problem in problems]


def test_a_folder_of_the_same_model_is_taken(folder: Path, tmp_path: Path) -> None:
    assert answers(folder) == []
    assert answers(write_folder(tmp_path / "several", job_from(tmp_path), files=3)) == []


def test_a_job_that_starts_elsewhere_is_not_looked_at() -> None:
    assert hf_problems(make_job(), VOCAB) == []
    assert hf_problems(make_job({"init_from": "/some/checkpoint"}), VOCAB) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model__hidden_size": 128}, "hidden_size"),
        ({"model__num_hidden_layers": 3}, "num_hidden_layers"),
        ({"model__num_key_value_heads": 4}, "num_key_value_heads"),
        ({"model__rms_norm_eps": 1e-6}, "rms_norm_eps"),
        ({"model__rope_theta": 1e4}, "rope_theta"),
        ({"model__tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"model__head_dim": 32}, "head_dim"),
        ({"model__architecture": "qwen3"}, "model_type"),
        ({"model__rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type"),
    ],
)
def test_each_field_that_disagrees_is_named(folder: Path, change: dict[str, Any], field: str) -> None:
    assert any(answer.startswith(f"{field} is ") for answer in answers(folder, **change))


def test_all_disagreements_come_at_once_and_say_how_to_mend_them(folder: Path) -> None:
    problems = hf_problems(job_from(folder, model__hidden_size=128, model__rope_theta=1e4), VOCAB)

    assert [problem.what.split()[0] for problem in problems] == ["hidden_size", "head_dim", "rope_theta"]
    assert problems[0].where == str(folder / "config.json")
    assert problems[0].hint == "set model.hidden_size to what the folder has, or choose the model of the folder"


def test_a_longer_sequence_than_the_folder_was_made_for_is_the_jobs_choice(folder: Path) -> None:
    assert answers(folder, model__max_position_embeddings=8192) == []


def test_another_vocabulary_is_refused_with_the_tokenizer_to_take(folder: Path) -> None:
    (problem,) = hf_problems(job_from(folder, model__vocab_size=None), 4096)

    assert problem.what == f"vocab_size is {VOCAB} in the folder, the job's model has 4096"
    assert f"tokenizer.path={folder}" in (problem.hint or "")


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is gelu in the folder, the job's model has silu"),
        ({"mlp_bias": True}, "mlp_bias is True in the folder, the job's model has False"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is quantized weights in the folder"),
        ({"hidden_size": None}, "hidden_size is nothing in the folder, the job's model has 64"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5 in the folder, the job's model has 1.0"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is dynamic in the folder"),
    ],
)
def test_what_no_model_of_ours_has_is_refused(folder: Path, fields: dict[str, Any], answer: str) -> None:
    change_config(folder, **fields)

    assert any(given.startswith(answer) for given in answers(folder))


def change_tensors(folder: Path, changes: dict[str, Any]) -> None:
    tensors = load_file(folder / "model.safetensors") | changes
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / "model.safetensors")


def test_missing_strange_and_misshapen_tensors_are_named(folder: Path) -> None:
    wrong = {
        "model.norm.weight": None,
        "model.layers.9.mlp.up_proj.weight": np.zeros(1, np.float32),
        "lm_head.weight": np.zeros((VOCAB, 32), np.float32),
        "model.layers.0.mlp.up_proj.weight": np.zeros((128, 64), np.int8),
    }
    change_tensors(folder, wrong)

    assert answers(folder) == [
        "the folder lacks 1 tensor of the model: model.norm.weight",
        "the folder holds 1 tensor that the model does not have: model.layers.9.mlp.up_proj.weight",
        f"the folder holds 1 tensor of another shape: lm_head.weight ({VOCAB}, 32), not ({VOCAB}, 64)",
        "the folder holds 1 tensor in another number format than F32, BF16, F16, F64: "
        "model.layers.0.mlp.up_proj.weight I8",
    ]


def test_what_older_folders_hold_besides_is_passed_over(tmp_path: Path) -> None:
    tied = write_folder(tmp_path / "tied", job_from(tmp_path, model__tie_word_embeddings=True))
    old = {"lm_head.weight": np.zeros(1, np.float32), "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(8)}
    change_tensors(tied, old)

    assert answers(tied, model__tie_word_embeddings=True) == []


def test_the_layer_that_guesses_a_second_token_is_passed_over_in_deepseek_v3_alone(tmp_path: Path) -> None:
    v3 = {f"model__{name}": value for name, value in MLA.items()}
    folder = write_folder(tmp_path / "v3", job_from(tmp_path, **v3))
    change_tensors(folder, {"model.layers.2.eh_proj.weight": np.zeros(1, np.float32)})
    assert answers(folder, **v3) == []

    change_tensors(folder, {"model.layers.3.eh_proj.weight": np.zeros(1, np.float32)})
    assert answers(folder, **v3) == [
        "the folder holds 1 tensor that the model does not have: model.layers.3.eh_proj.weight"
    ]


def test_a_folder_that_is_not_here_is_refused_unless_paths_are_taken_on_trust(tmp_path: Path) -> None:
    away = tmp_path / "away"

    assert answers(away) == ["there is no such folder"]
    assert answers(away, launch__check_paths=False) == []


def test_a_rank_looks_also_where_the_command_did_not(tmp_path: Path, folder: Path) -> None:
    assert len(open_hf(folder, job_from(folder), VOCAB).tensors) == 21
    with pytest.raises(UserError, match="no such folder"):
        open_hf(tmp_path / "away", job_from(tmp_path / "away", launch__check_paths=False), VOCAB)
    with pytest.raises(UserError, match="hidden_size"):
        open_hf(folder, job_from(folder, model__hidden_size=128), VOCAB)


@pytest.mark.parametrize("change", [{"model.architecture": "gpt_oss"}, {"model.attention_bias": True}])
def test_a_model_without_a_known_form_is_neither_read_nor_exported(tmp_path: Path, change: dict[str, Any]) -> None:
    job = make_job({"init_from": f"hf:{tmp_path}", "checkpoint.export_hf": True, **change})

    assert [problem.key for problem in [*hf_problems(job, VOCAB), *export_problems(job)]] == [
        "init_from",
        "checkpoint.export_hf",
    ]
    assert export_problems(make_job(change)) == []
