from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_hydra.weights.folder import read_folder
from primus_hydra.weights.headers import BrokenFileError, read_header
from tests.unit.weights.model_folder import job_from, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "model", job_from(tmp_path), files=2)


def said(folder: Path) -> list[str]:
    return [f"{Path(problem.where or '').name}: {problem.what}" for problem in read_folder(folder).problems]


def test_names_shapes_and_formats_come_from_the_headers(folder: Path) -> None:
    tensors = read_folder(folder).tensors

    info = tensors["model.layers.1.self_attn.k_proj.weight"]
    assert (info.shape, info.dtype) == ((32, 64), "F32")
    assert {info.file.name for info in tensors.values()} == {"part-0.safetensors", "part-1.safetensors"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"abc", "only 3 bytes"),
        (b"\xff" * 64, "does not begin with the header"),
        (b"\x04" + b"\0" * 7 + b"{{{{", "not JSON"),
        (b"\x02" + b"\0" * 7 + b"[]", "not a JSON object"),
        (b"\x08" + b"\0" * 7 + b'{"a":{}}', "lacks a part"),
    ],
)
def test_a_file_that_is_something_else_is_told_apart(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)

    with pytest.raises(BrokenFileError, match=reason):
        read_header(tmp_path / "x.safetensors")


def test_a_file_that_breaks_off_is_found(folder: Path) -> None:
    file = folder / "part-1.safetensors"
    file.write_bytes(file.read_bytes()[:-100])

    assert said(folder)[0].startswith("part-1.safetensors: the file is damaged: it has ")


def test_an_index_that_names_what_is_not_there_is_refused(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": {**places, "ghost": "part-0.safetensors"}}))
    assert said(folder) == [f"{index.name}: names 1 tensors that are in no file: ghost, ..."]

    (folder / "part-0.safetensors").unlink()
    assert said(folder) == ["part-0.safetensors: the file is not there, but the index names it"]

    index.write_text("{}{")
    assert said(folder)[0].startswith(f"{index.name}: cannot be read as JSON")

    index.write_text('{"weight_map": []}')
    assert said(folder) == [f"{index.name}: has no weight_map from tensors to files"]


def test_files_that_the_index_leaves_out_do_not_count(folder: Path) -> None:
    (folder / "consolidated.safetensors").write_bytes(b"something else")

    assert said(folder) == []


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    assert said(tmp_path / "away") == ["away: there is no such folder"]

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    (problem,) = read_folder(tmp_path).problems
    assert problem.what == "the folder has no *.safetensors"
    assert "safe_serialization" in (problem.hint or "")

    (tmp_path / "config.json").unlink()
    assert "no config.json" in said(tmp_path)[0]
