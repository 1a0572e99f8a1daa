from __future__ import annotations

import struct
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

from primus_hydra.data.megatron_index import BrokenIndexError, bin_file, index_file, read_index, write_index
from primus_hydra.data.token_files import ensure_index, open_tokens
from tests.unit.data.indexed import write_indexed
from tests.unit.data.support import prepare, text_job

DOCUMENTS = [[7, 8, 9], [1], [65_535, 0, 3, 4, 5]]


@pytest.mark.parametrize(("dtype", "read_as"), [("<u2", np.uint16), ("<u4", np.int32)])
def test_megatron_reads_what_we_write(tmp_path, dtype, read_as):
    dataset = IndexedDataset(str(write_indexed(tmp_path / "part.one", DOCUMENTS, dtype=dtype)))
    assert [dataset[number].tolist() for number in range(len(dataset))] == DOCUMENTS
    assert dataset[0].dtype == read_as
    assert dataset.get(2, offset=1, length=3).tolist() == [0, 3, 4]
    assert dataset.document_indices.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_we_read_what_megatron_writes_and_write_the_same_bytes(tmp_path, dtype):
    prefix = tmp_path / "theirs"
    builder = IndexedDatasetBuilder(str(bin_file(prefix)), dtype=dtype)
    for document in DOCUMENTS:
        builder.add_document(torch.tensor(document), [len(document)])
    builder.finalize(str(index_file(prefix)))

    index = read_index(index_file(prefix))

    assert (index.documents, index.lengths.tolist()) == (3, [3, 1, 5])
    assert index.bin_bytes == bin_file(prefix).stat().st_size
    assert [index.tokens_in(range(first, 3)) for first in range(4)] == [9, 6, 5, 0]
    ours = write_indexed(tmp_path / "ours", DOCUMENTS, dtype="<u2" if dtype is np.uint16 else "<u4")
    assert index_file(ours).read_bytes() == index_file(prefix).read_bytes()
    assert bin_file(ours).read_bytes() == bin_file(prefix).read_bytes()


def test_an_index_with_a_mode_for_each_sequence_is_read(tmp_path):
    file = index_file(write_indexed(tmp_path / "a", DOCUMENTS))
    file.write_bytes(file.read_bytes() + b"\0\0\1")
    assert read_index(file).documents == 3


def test_an_index_of_no_documents_is_one(tmp_path):
    write_index(tmp_path / "a.idx", np.zeros(1, dtype=np.int64), "<u2")
    index = read_index(tmp_path / "a.idx")
    assert (index.documents, index.bin_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda whole: b"", "does not begin as a Megatron index"),
        (lambda whole: b"PK" + whole[2:], "does not begin as a Megatron index"),
        (lambda whole: whole[:9] + struct.pack("<Q", 2) + whole[17:], "version 2"),
        (lambda whole: whole[:17] + b"\x63" + whole[18:], "unknown token type 99"),
        (lambda whole: whole[:17] + b"\x07" + whole[18:], "float32 numbers"),
        (lambda whole: whole[:-1], "bytes, and 3 sequences need"),
    ],
)
def test_a_file_that_is_no_index_is_refused_with_the_reason(tmp_path, change, says):
    file = index_file(write_indexed(tmp_path / "a", DOCUMENTS))
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(BrokenIndexError, match=says):
        read_index(file)


def test_prepared_tokens_are_an_indexed_data_set_of_megatron(tmp_path, prose):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{line}"}}\n' for line in prose.splitlines()))
    folder = Path(prepare(text_job(tmp_path / "a.jsonl")).tokens_dir or "")
    files, dataset = open_tokens(folder), IndexedDataset(str(folder / "tokens"))
    assert files is not None
    assert len(dataset) == files.meta.documents == 300
    assert np.concatenate([dataset[number] for number in range(300)]).tolist() == files.tokens.tolist()


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-8])])
def test_an_index_that_is_missing_or_damaged_is_written_again_and_nothing_else(tmp_path, prose, damage):
    (tmp_path / "a.txt").write_text(prose)
    job = text_job(tmp_path / "a.txt")
    folder = Path(prepare(job).tokens_dir or "")
    file = folder / "tokens.idx"
    whole, made = file.read_bytes(), (folder / "tokens.bin").stat().st_mtime_ns
    damage(file)
    lines: list[str] = []
    prepare(job, lines)
    assert (file.read_bytes(), (folder / "tokens.bin").stat().st_mtime_ns, lines) == (whole, made, [])
    assert sorted(entry.name for entry in folder.iterdir() if entry.name.startswith(".tokens")) == []


def test_processes_that_miss_the_index_at_once_leave_one_whole_file(tmp_path, prose):
    (tmp_path / "a.txt").write_text(prose)
    folder = Path(prepare(text_job(tmp_path / "a.txt")).tokens_dir or "")
    whole = (folder / "tokens.idx").read_bytes()
    (folder / "tokens.idx").unlink()
    start, lines = threading.Barrier(8), []

    def ensure() -> None:
        start.wait()
        ensure_index(folder, lines.append)

    writers = [threading.Thread(target=ensure) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert (lines, (folder / "tokens.idx").read_bytes()) == ([], whole)


def test_a_cache_that_takes_no_index_still_serves_and_says_so(tmp_path, prose, monkeypatch):
    (tmp_path / "a.txt").write_text(prose)
    job = text_job(tmp_path / "a.txt")
    prepared = prepare(job)
    (Path(prepared.tokens_dir or "") / "tokens.idx").unlink()

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("primus_hydra.data.token_files.write_index", refuse)
    lines: list[str] = []
    assert prepare(job, lines) == prepared
    assert ["Read-only file system" in line for line in lines] == [True]
