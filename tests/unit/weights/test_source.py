"""What lies in a folder of weights is told from its files, whoever wrote it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from primus_hydra.errors import UserError
from primus_hydra.weights.source import WeightSource, find_source
from tests.support import make_job
from tests.unit.weights.made_sources import make_checkpoint, make_converted, make_run
from tests.unit.weights.model_folder import job_from, write_folder


def found(named: Path | str, tmp_path: Path, step: int | None = None) -> WeightSource:
    return find_source(str(named), tmp_path / "runs", step)


def test_every_kind_of_folder_is_known(tmp_path: Path) -> None:
    hub = write_folder(tmp_path / "hub", job_from(tmp_path))
    titan, megatron = make_checkpoint(tmp_path / "a"), make_checkpoint(tmp_path / "b", megatron=True)

    assert [found(folder, tmp_path).kind for folder in (hub, titan, megatron)] == ["hf", "torchtitan", "megatron"]


@pytest.mark.parametrize(
    ("backend", "kind"), [("torchtitan", "torchtitan"), ("megatron", "megatron"), ("megatron_training", "megatron")]
)
def test_a_run_gives_its_newest_whole_checkpoint_its_model_and_its_tokenizer(
    backend: str, kind: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "runs" / "mine", backend, (10, 20, 30))
    (run.checkpoint(30) / "primus_checkpoint.json").unlink()

    source = found("mine", tmp_path)

    assert (source.folder, source.kind) == (run.checkpoint(20).resolve(), kind)
    assert source.model == make_job({"model.vocab_size": 96}).model
    assert source.tokenizer_dir == str(run.root / "tokenizer")
    assert found(run.root, tmp_path, step=10).folder == run.checkpoint(10).resolve()
    assert found(run.checkpoint(10), tmp_path) == found("mine", tmp_path, step=10)


def test_a_checkpoint_that_was_converted_tells_its_model_and_where_its_tokenizer_was(tmp_path: Path) -> None:
    hub = write_folder(tmp_path / "hub", job_from(tmp_path))
    model = asdict(make_job({"model.hidden_size": 128}).model)
    folder = make_converted(tmp_path / "mcore", hub, model)

    assert found(folder, tmp_path).tokenizer_dir is None
    (hub / "tokenizer.json").touch()
    source = found(folder, tmp_path)

    assert source.model is not None
    assert (source.model.hidden_size, source.model.name) == (128, "mcore")
    assert source.tokenizer_dir == str(hub)


@pytest.mark.parametrize(("word", "folder"), [("12", "iter_0000012"), ("release", "release")])
def test_the_newest_checkpoint_of_upstreams_folder_is_taken(word: str, folder: str, tmp_path: Path) -> None:
    newest = make_checkpoint(tmp_path / "save" / folder, megatron=True)
    (tmp_path / "save" / "latest_checkpointed_iteration.txt").write_text(f"{word}\n")

    assert found(tmp_path / "save", tmp_path) == WeightSource(folder=newest.resolve(), kind="megatron")


def test_what_holds_no_weights_is_refused_with_what_to_name(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "mine", "torchtitan", (10,))
    (tmp_path / "empty").mkdir()

    for named, step, said in (
        ("nowhere", None, "there is no folder or run 'nowhere'"),
        (tmp_path / "empty", None, "it holds no weights"),
        (run.checkpoints, None, "step-10"),
        ("mine", 11, "no checkpoint at step 11"),
        (run.checkpoint(10), 10, "has no steps"),
    ):
        with pytest.raises(UserError, match=said):
            found(named, tmp_path, step)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "a", backend="torchtitan")
    (folder / ".metadata").write_bytes(b"other")

    with pytest.raises(UserError, match=r"damaged: \.metadata has other content"):
        found(folder, tmp_path)
