"""Weights go through a backend's layout and come back bit by bit, with few tensors in memory, and after breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict_loader import load

from primus_hydra.convert.dcp_reader import DcpReader
from primus_hydra.convert.hf_source import HfSource
from primus_hydra.convert.journal import Journal, is_finished
from primus_hydra.convert.meter import Meter
from primus_hydra.convert.to_hf import ToHf
from primus_hydra.convert.to_native import ToNative
from primus_hydra.errors import HostError, UserError
from primus_hydra.weights.folder import read_folder
from tests.unit.convert.made_format import HEADS, LAYERS, ROWS, WIDTH, layout, shapes, write_source

TASK = {"what": "test"}


def to_native(source: Path, folder: Path, *, shard: int = 4000, dtype: torch.dtype | None = None) -> Meter:
    """Convert a folder into the made-up format, and read it back."""
    meter = Meter()
    with HfSource(read_folder(source), meter) as pieces:
        work = ToNative(layout(), pieces, dtype, meter)
        work.write(Journal.open(folder, TASK), shard_bytes=shard, report=lambda file, size: None)
        work.check(folder)
    return meter


def to_hf(source: Path, folder: Path, *, shard: int = 4000, dtype: torch.dtype | None = None) -> Meter:
    """Convert the made-up format into a folder, and read it back."""
    meter = Meter()
    work = ToHf(layout(), DcpReader(source, meter), shapes(), dtype, meter)
    plan = work.write(Journal.open(folder, TASK), shard_bytes=shard, report=lambda file, size: None)
    (folder / "model.safetensors.index.json").write_text(json.dumps(plan.index()))
    (folder / "config.json").write_text("{}")
    work.check(folder)
    return meter


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Everything in the files of a folder."""
    return {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_come_back_bit_by_bit_in_their_number_format(dtype: torch.dtype, tmp_path: Path) -> None:
    weights = write_source(tmp_path / "hf", dtype)

    to_native(tmp_path / "hf", tmp_path / "native")
    to_hf(tmp_path / "native", tmp_path / "back")

    back = tensors(tmp_path / "back")
    assert back.keys() == weights.keys()
    assert {value.dtype for value in back.values()} == {dtype}
    assert all(torch.equal(value, weights[name]) for name, value in back.items())


def test_torchs_own_loader_reads_the_checkpoint(tmp_path: Path) -> None:
    weights = write_source(tmp_path / "hf")
    to_native(tmp_path / "hf", tmp_path / "native")

    found = {"qk": torch.zeros(LAYERS, 2 * WIDTH, WIDTH), "down": torch.zeros(LAYERS, WIDTH, WIDTH)}
    load(found, checkpoint_id=tmp_path / "native", no_dist=True)

    assert torch.equal(found["down"], torch.stack([weights[f"layers.{layer}.down"] for layer in range(LAYERS)]))
    head = WIDTH // HEADS
    first = weights["layers.3.q"][:head]
    assert torch.equal(found["qk"][3, :head:2], first[: head // 2])
    assert torch.equal(found["qk"][3, 1:head:2], first[head // 2 :])


def test_memory_holds_a_few_tensors_however_many_there_are(tmp_path: Path) -> None:
    write_source(tmp_path / "hf")

    there = to_native(tmp_path / "hf", tmp_path / "native", shard=10**9)
    back = to_hf(tmp_path / "native", tmp_path / "back", shard=10**9)

    whole = sum(value.numel() * 4 for value in tensors(tmp_path / "hf").values())
    assert there.largest == back.largest == ROWS * WIDTH * 4
    assert there.peak <= 3 * there.largest < whole / 2
    assert back.peak <= 3 * back.largest
    assert there.live == 0


def test_a_conversion_that_broke_off_goes_on_after_its_last_whole_file(tmp_path: Path) -> None:
    write_source(tmp_path / "hf")
    to_native(tmp_path / "hf", tmp_path / "whole")
    with HfSource(read_folder(tmp_path / "hf"), Meter()) as pieces:
        work, journal = ToNative(layout(), pieces, None, Meter()), Journal.open(tmp_path / "native", TASK)
        with pytest.raises(KeyboardInterrupt):
            work.write(journal, shard_bytes=4000, report=stop_after(2))
    left = {file: file.stat().st_mtime_ns for file in (tmp_path / "native").glob("*.distcp")}
    assert len(left) == 2

    to_native(tmp_path / "hf", tmp_path / "native")

    assert {file: file.stat().st_mtime_ns for file in left} == left
    again, once = (
        {file.name: file.read_bytes() for file in (tmp_path / name).glob("*")} for name in ("native", "whole")
    )
    assert again.keys() == once.keys()
    assert [name for name in once if name.endswith(".distcp") and again[name] != once[name]] == []


def contents(folder: Path) -> dict[str, bytes]:
    """The files of tensors."""
    return {file.name: file.read_bytes() for file in folder.glob("*.distcp")}


def stop_after(files: int) -> Any:
    """Return a report that stops the conversion, as a Ctrl-C would, once so many files are whole."""
    left = iter(range(files - 1))

    def report(file: str, size: int) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize("change", [b"", b"other"], ids=["cut short", "changed"])
def test_a_file_that_is_not_as_it_was_written_is_written_again(change: bytes, tmp_path: Path) -> None:
    write_source(tmp_path / "hf")
    to_native(tmp_path / "hf", tmp_path / "native")
    file = tmp_path / "native" / "__0_1.distcp"
    before = file.read_bytes()
    file.write_bytes(before[: -len(change) - 1] + change + (b"x" if change else b""))
    assert file.read_bytes() != before

    to_native(tmp_path / "hf", tmp_path / "native")

    assert file.read_bytes() == before


def test_a_folder_of_another_conversion_is_left_alone(tmp_path: Path) -> None:
    Journal.open(tmp_path / "mine", TASK)
    with pytest.raises(UserError, match="another conversion, or the source has changed"):
        Journal.open(tmp_path / "mine", {"what": "else"})
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    with pytest.raises(UserError, match="files of something else"):
        Journal.open(tmp_path / "theirs", TASK)


def test_a_finished_conversion_is_known_by_its_files(tmp_path: Path) -> None:
    write_source(tmp_path / "hf")
    to_native(tmp_path / "hf", tmp_path / "native")
    assert is_finished(tmp_path / "native", TASK)
    assert not is_finished(tmp_path / "native", {"what": "else"})
    (tmp_path / "native" / "__0_0.distcp").unlink()
    assert not is_finished(tmp_path / "native", TASK)


def test_numbers_that_were_written_wrong_are_found(tmp_path: Path) -> None:
    write_source(tmp_path / "hf")
    meter = Meter()
    with HfSource(read_folder(tmp_path / "hf"), meter) as pieces:
        work = ToNative(layout(), pieces, None, meter)
        work.write(Journal.open(tmp_path / "native", TASK), shard_bytes=4000, report=lambda file, size: None)
        file = tmp_path / "native" / "__0_0.distcp"
        content = bytearray(file.read_bytes())
        at = content.find(tensors(tmp_path / "hf")["embed"].numpy().tobytes()[:64])
        assert at > 0
        content[at + 3] ^= 1
        file.write_bytes(content)
        with pytest.raises((RuntimeError, HostError)):
            work.check(tmp_path / "native")


def test_a_narrower_number_format_is_known_to_lose_something(tmp_path: Path) -> None:
    write_source(tmp_path / "hf")
    meter = Meter()
    with HfSource(read_folder(tmp_path / "hf"), meter) as pieces:
        assert ToNative(layout(), pieces, torch.float32, meter).exact
        assert not ToNative(layout(), pieces, torch.bfloat16, meter).exact


def test_a_checkpoint_that_is_no_checkpoint_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"nothing of the kind")
    with pytest.raises(HostError, match="cannot be read"):
        DcpReader(tmp_path, Meter())
