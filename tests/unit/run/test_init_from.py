"""A checkpoint that cannot start the run is refused by the parent, which needs neither torch nor the backend for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import UserError
from primus_hydra.run.init_from import init_from_problems, require_checkpoint
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.model_shape import shape_of
from tests.support import make_job


def job_from(folder: Path | str, backend: str = "megatron", overrides: dict[str, Any] | None = None) -> JobConfig:
    return make_job({"init_from": str(folder), "backend.name": backend, **(overrides or {})})


def save(folder: Path, *, backend: str = "megatron", names: tuple[str, ...] = ("metadata.json",)) -> Path:
    """Write what a checkpoint of the tiny model with 512 tokens looks like from outside."""
    folder.mkdir(parents=True)
    for name in (".metadata", "__0_0.distcp", *names):
        (folder / name).write_bytes(b"content of " + name.encode())
    job = make_job()
    extra = {"backend": backend, "model": {"name": job.model.name, **shape_of(job.model, 512)}}
    write_manifest(folder, 7, extra)
    return folder


def only_problem(job: JobConfig) -> str:
    (problem,) = init_from_problems(job)
    assert problem.key == "init_from"
    return str(problem)


def test_a_whole_checkpoint_of_the_same_model_is_fine_under_any_name(tmp_path: Path) -> None:
    assert init_from_problems(job_from(save(tmp_path / "my weights"))) == []


def test_both_ways_to_train_with_megatron_read_one_another(tmp_path: Path) -> None:
    folder = save(tmp_path / "step-7", backend="megatron_training")
    assert init_from_problems(job_from(folder, "megatron")) == []


def test_another_backend_is_named_with_the_way_across(tmp_path: Path) -> None:
    text = only_problem(job_from(save(tmp_path / "step-7", backend="torchtitan"), "megatron"))
    assert "saved by backend=torchtitan, whose files megatron cannot read" in text
    assert "checkpoint.export_hf=true" in text


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model.num_hidden_layers", 4, "model.num_hidden_layers is 2 there and 4 here"),
        ("model.hidden_size", 128, "model.hidden_size is 64 there and 128 here"),
        ("model.num_key_value_heads", 4, "model.num_key_value_heads is 2 there and 4 here"),
        ("model.vocab_size", 1024, "model.vocab_size is 512 there and 1024 here"),
        ("model.tie_word_embeddings", True, "model.tie_word_embeddings is False there and True here"),
    ],
)
def test_another_model_is_told_by_what_differs(tmp_path: Path, key: str, value: object, words: str) -> None:
    text = only_problem(job_from(save(tmp_path / "step-7"), overrides={key: value}))
    assert words in text
    assert "llama3_tiny" in text


@pytest.mark.parametrize(
    "overrides",
    [
        {"model.rope_theta": 1e6},  # no weight depends on it
        {"model.vocab_size": None},  # not known before the data are prepared
        {"model.num_key_value_heads": 2, "model.head_dim": 16},  # the defaults, said aloud
    ],
)
def test_what_shapes_no_weight_may_differ(tmp_path: Path, overrides: dict[str, Any]) -> None:
    assert init_from_problems(job_from(save(tmp_path / "step-7"), overrides=overrides)) == []


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    folder = save(tmp_path / "step-7")
    (folder / "__0_0.distcp").write_bytes(b"short")
    assert "__0_0.distcp has 5 bytes" in only_problem(job_from(folder))
    (folder / "__0_0.distcp").unlink()
    assert "__0_0.distcp is missing" in only_problem(job_from(folder))


def test_a_checkpoint_of_torch_alone_is_not_megatrons(tmp_path: Path) -> None:
    (tmp_path / ".metadata").touch()
    assert "megatron can read (it has no metadata.json)" in only_problem(job_from(tmp_path))
    assert init_from_problems(job_from(tmp_path, "torchtitan")) == []


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("model.safetensors", "init_from=hf:"),
        ("step-5/.metadata", "name the step folder itself"),
        ("checkpoints/step-5/.metadata", "name the step folder itself"),
        ("notes.txt", "name the step folder of a finished save"),
    ],
)
def test_a_folder_that_is_no_checkpoint_is_mended_in_words(tmp_path: Path, inside: str, words: str) -> None:
    (tmp_path / inside).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / inside).touch()
    text = only_problem(job_from(tmp_path, "torchtitan"))
    assert "it has no .metadata" in text
    assert words in text


@pytest.mark.parametrize("init_from", ["hf:nowhere", "/nowhere/at/all", None])
def test_nothing_is_said_of_what_is_not_here(init_from: str | None) -> None:
    assert init_from_problems(make_job({"init_from": init_from})) == []


def test_a_rank_needs_the_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        require_checkpoint(job_from(tmp_path / "nowhere"))
    assert require_checkpoint(job_from(save(tmp_path / "step-7"))) == tmp_path / "step-7"
