"""`task=convert` refuses what cannot be converted before any other process is started, and asks for the right thing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.composed import Composed
from primus_hydra.errors import HostError, UserError
from primus_hydra.tasks import convert
from primus_hydra.tasks.convert import Convert
from primus_hydra.tasks.convert_process import converted
from primus_hydra.weights.request import ConvertRequest, ConvertResult, Verified
from tests.support import make_job
from tests.unit.weights.made_sources import make_checkpoint, make_run
from tests.unit.weights.model_folder import VOCAB, change_config, job_from, write_folder

RESULT = ConvertResult(
    files=2,
    files_reused=1,
    tensors=21,
    bytes=1 << 20,
    peak_bytes=4096,
    largest_bytes=2048,
    verified=Verified(tensors=21),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ConvertRequest]:
    """The requests that would be carried out."""
    requests: list[ConvertRequest] = []

    def note(request: ConvertRequest, folder: Path) -> ConvertResult:
        requests.append(request)
        return RESULT

    monkeypatch.setattr(convert, "converted", note)
    return requests


def run(tmp_path: Path, *typed: str, job: dict[str, Any] | None = None, **options: Any) -> int:
    composed = Composed(job=make_job({"run.dir": str(tmp_path / "runs"), **(job or {})}), tree={}, overrides=typed)
    defaults = {"to": "megatron", "output": str(tmp_path / "out")}
    return Convert(Convert.Options(**{**defaults, **options})).run(composed)


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "hub", job_from(tmp_path))


def test_the_request_says_everything_that_the_other_process_needs(
    hub: Path, tmp_path: Path, asked: list[ConvertRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, source=str(hub), dtype="bfloat16", shard_gib=0.5) == 0

    (request,) = asked
    assert (request.source_kind, request.to, request.native, request.dtype) == (
        "hf",
        "megatron",
        "megatron",
        "bfloat16",
    )
    assert (request.source, request.output) == (str(hub), str(tmp_path / "out"))
    assert request.shard_bytes == 1 << 29
    shown = capsys.readouterr().out
    assert "hub: 21 tensors, 1.00 MiB in 2 files, 1 of them from an earlier try" in shown
    assert f"use it: init_from={tmp_path / 'out'}" in shown


def test_an_option_that_is_missing_is_named_with_all_others(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"(?s)task\.source.*task\.to.*task\.output"):
        run(tmp_path, to=None, output=None)


def test_two_formats_of_backends_go_through_hugging_faces(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="convert it to hf first"):
        run(tmp_path, source=str(make_checkpoint(tmp_path / "a")))
    with pytest.raises(UserError, match="torchtitan or megatron"):
        run(tmp_path, source=str(hub), to="hf")


def test_a_model_that_is_not_named_is_the_sources_own(hub: Path, tmp_path: Path, asked: list[ConvertRequest]) -> None:
    change_config(hub, rms_norm_eps=0.125)
    kept: list[float] = []

    def note(request: ConvertRequest, folder: Path) -> ConvertResult:
        kept.append(convert_job(request))
        return RESULT

    convert.converted = note  # type: ignore[assignment]  # put back by the fixture
    run(tmp_path, source=str(hub))

    assert kept == [0.125]


def convert_job(request: ConvertRequest) -> float:
    from primus_hydra.config.build import load_job

    return load_job(Path(request.job)).model.rms_norm_eps


def test_a_model_that_is_named_must_be_the_sources(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="hidden_size is 64 in the folder, the job's model has 128"):
        run(tmp_path, "model.hidden_size=128", source=str(hub), job={"model.hidden_size": 128})

    make_run(tmp_path / "runs" / "mine", "torchtitan", (10,))
    change = {"model.vocab_size": VOCAB, "model.rope_theta": 1.0}
    with pytest.raises(UserError, match=r"model\.rope_theta: it is 500000\.0 in the source, and 1\.0 here"):
        run(tmp_path, "model=other", source="mine", to="hf", job=change)


def test_a_family_whose_form_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not for gpt_oss"):
        run(tmp_path, source=str(make_checkpoint(tmp_path / "a")), to="hf", job={"model.architecture": "gpt_oss"})


def test_the_tokenizer_of_a_run_goes_with_its_weights_unless_another_is_named(
    tmp_path: Path, asked: list[ConvertRequest]
) -> None:
    mine = make_run(tmp_path / "runs" / "mine", "megatron", (10,))
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").touch()

    run(tmp_path, source="mine", to="hf")
    run(tmp_path, source="mine", to="hf", job={"tokenizer.kind": "hf", "tokenizer.path": str(other)})

    assert [request.tokenizer_dir for request in asked] == [str(mine.root / "tokenizer"), str(other)]


def test_an_output_that_is_there_is_refused(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=r"it is there already\s"):
        run(tmp_path, source=str(hub))
    (tmp_path / "out" / "primus_conversion.json").touch()
    with pytest.raises(UserError, match="nothing is left to do"):
        run(tmp_path, source=str(hub))


def test_a_disk_without_room_is_told_before_anything_is_written(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = dataclasses.make_dataclass("Usage", ["free"])(1000)
    monkeypatch.setattr(convert.shutil, "disk_usage", lambda folder: full)

    with pytest.raises(HostError, match="the output takes"):
        run(tmp_path, source=str(hub))
    assert not (tmp_path / "out.partial").exists()


def test_what_the_other_process_finds_wrong_is_told_as_if_found_here(tmp_path: Path) -> None:
    request = ConvertRequest(
        job=str(tmp_path / "nowhere.yaml"),
        source="here",
        source_kind="hf",
        to="megatron",
        output="out",
        dtype="keep",
        shard_bytes=1,
        verify="none",
    )

    with pytest.raises(HostError, match=r"nowhere\.yaml"):
        converted(request, tmp_path)


def test_a_request_survives_its_file(tmp_path: Path) -> None:
    request = ConvertRequest(
        job="a", source="b", source_kind="torchtitan", to="hf", output="c", dtype="keep", shard_bytes=1, verify="auto"
    )
    request.write(tmp_path / "request.json")

    assert ConvertRequest.read(tmp_path / "request.json") == request
    assert ConvertResult.from_json(RESULT.to_json()) == RESULT
