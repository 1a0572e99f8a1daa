from __future__ import annotations

import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from megatron.core.datasets.blended_dataset import BlendedDataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset

from primus_hydra.backends.megatron import indexed
from primus_hydra.backends.megatron.batches import BatchSource, open_batches
from primus_hydra.backends.megatron.dataset import open_dataset
from primus_hydra.backends.megatron.indexed import dataset_kwargs, open_indexed
from primus_hydra.config.schema import JobConfig
from primus_hydra.data import cache as cache_module
from primus_hydra.data.megatron_index import bin_file
from primus_hydra.data.prepare import prepare_data
from primus_hydra.errors import HostError
from primus_hydra.runtime.contracts import RankContext
from tests.unit.backends.torchtitan.rank_context import context_for
from tests.unit.data.indexed import END, indexed_job, numbered_documents, write_indexed, write_tokenizer

LENGTH = 16


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRIMUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return write_indexed(tmp_path / "books", numbered_documents(60))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write_indexed(tmp_path / "code", numbered_documents(40, first=500))


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path / "tokenizer")


def context_of(job: JobConfig) -> RankContext:
    return context_for(job, data=prepare_data(job, report=lambda _: None))


def open_split(job: JobConfig, split: Any = "train") -> BatchSource:
    context = context_of(job)
    dataset = GPTDatasetConfig(**dataset_kwargs(job, context))
    config: Any = SimpleNamespace(dataset=dataset, model=SimpleNamespace(layer_implementation="local"))
    return open_batches(config, job, context, split)


def stream(prefix: Path, documents: range) -> list[int]:
    dataset = IndexedDataset(str(prefix))
    return [int(token) for number in documents for token in dataset[number]]


def windows(tokens: list[int], count: int) -> list[list[int]]:
    return [tokens[first : first + LENGTH] for first in range(0, count * LENGTH, LENGTH)]


def test_shuffled_samples_are_those_of_megatron_for_the_same_number(books: Path) -> None:
    job = indexed_job(books, overrides={"training.steps": 30})
    source = open_split(job)
    theirs = GPTDatasetConfig(**dataset_kwargs(job, context_of(job)))
    theirs.path_to_cache = str(books.parent / "theirs")
    train, *_ = BlendedMegatronDatasetBuilder(GPTDataset, [30 * 4, 1, 0], lambda: True, theirs).build()
    assert len(source) == len(train) >= 120
    for position in range(120):
        item, batch = train[position], source.batch([position])
        assert all(getattr(batch, name)[0].equal(item[name]) for name in ("tokens", "labels", "loss_mask"))


def test_sequential_samples_are_the_documents_as_they_lie_over_all_epochs(books: Path) -> None:
    job = indexed_job(books, overrides={"data.order": "sequential", "training.steps": 40})
    source = open_split(job)
    tokens = stream(books, range(54)) * 4
    batch = source.batch(range(160))
    assert batch.tokens.tolist() == windows(tokens, 160)
    assert batch.labels.tolist() == windows(tokens[1:], 160)


def test_a_sequential_blend_reads_each_set_in_order_and_mixes_by_weight(books: Path, code: Path) -> None:
    job = indexed_job(["3", str(books), "1", str(code)], overrides={"data.order": "sequential", "training.steps": 10})
    rows = open_split(job).batch(range(40)).tokens.tolist()
    is_code = [max(row) >= 500 for row in rows]
    assert sum(is_code) == 10
    assert all(abs(sum(is_code[:count]) - count / 4) <= 1 for count in range(40))
    assert [row for row in rows if max(row) >= 500] == windows(stream(code, range(36)), 10)
    assert [row for row in rows if max(row) < 500] == windows(stream(books, range(54)), 30)


def test_a_shuffled_blend_is_megatrons_and_holds_both_sets(books: Path, code: Path) -> None:
    job = indexed_job(["0.5", str(books), "0.5", str(code)], overrides={"training.steps": 20})
    context = context_of(job)
    config = GPTDatasetConfig(**dataset_kwargs(job, context))
    dataset = open_indexed(config, job, context, "train", samples=80)
    assert isinstance(dataset, BlendedDataset)
    assert [dataset[position]["dataset_id"] for position in range(80)].count(0) == 40


def test_the_position_alone_decides_the_sample_so_a_run_goes_on_in_the_middle_of_an_epoch(books: Path) -> None:
    job = indexed_job(books, overrides={"training.steps": 30})
    before = open_split(job).batch(range(50, 60)).tokens
    assert open_split(job).batch(range(50, 60)).tokens.equal(before)
    assert len({tuple(row) for row in before.tolist()}) > 5


def test_a_position_beyond_what_was_drawn_is_refused(books: Path) -> None:
    source = open_split(indexed_job(books))
    with pytest.raises(IndexError):
        source.batch([len(source)])


def test_validation_is_the_held_out_end_read_once_in_order(books: Path) -> None:
    job = indexed_job(books, overrides={"validation.enable": True, "validation.steps": 50})
    source = open_split(job, "validation")
    tokens = stream(books, range(54, 60))
    assert len(source) == (len(tokens) - 1) // LENGTH
    assert source.batch(range(len(source))).tokens.tolist() == windows(tokens, len(source))


def test_validation_of_a_blend_repeats_no_set(books: Path, code: Path) -> None:
    job = indexed_job(["1", str(books), "9", str(code)], overrides={"validation.enable": True, "validation.steps": 50})
    source = open_split(job, "validation")
    rows = [tuple(row) for row in source.batch(range(len(source))).tokens.tolist()]
    held = (len(stream(code, range(36, 40))) - 1) // LENGTH
    assert held <= len(rows) <= held / 0.9 + 2
    assert len(rows) - len(set(rows)) <= 1


def test_validation_of_its_own_data_sets_reads_all_of_them_and_training_keeps_every_document(
    books: Path, code: Path
) -> None:
    overrides = {"training.steps": 20, "data.order": "sequential", "data.validation_path": str(code)}
    job = indexed_job(books, overrides=overrides)
    train, held = open_split(job), open_split(job, "validation")

    read = [held.batch([position]).tokens[0].tolist() for position in range(len(held))]
    assert read == windows(stream(code, range(40)), len(read))
    assert len(read) == (len(stream(code, range(40))) - 1) // LENGTH
    epoch = len(stream(books, range(60))) // LENGTH
    first = [train.batch([position]).tokens[0].tolist() for position in range(epoch)]
    assert first == windows(stream(books, range(60)), epoch)


def test_with_a_document_mask_borders_are_end_tokens_and_no_label_crosses_them(books: Path, tokenizer: Path) -> None:
    batch = open_split(indexed_job(books, tokenizer)).batch(range(12))
    ends = batch.tokens == END
    assert batch.documents is not None
    assert (batch.documents[:, 1:] != batch.documents[:, :-1]).equal(ends[:, :-1])
    assert batch.loss_mask.eq(0).equal(ends)
    assert batch.position_ids[:, 1:].eq(0).equal(ends[:, :-1])
    assert batch.attention_mask is not None
    assert ends.any()


def test_without_a_document_mask_megatron_packs_plainly(books: Path) -> None:
    batch = open_split(indexed_job(books)).batch(range(12))
    assert (batch.documents, batch.attention_mask, batch.loss_mask.min().item()) == (None, None, 1.0)
    assert batch.position_ids.eq(torch.arange(LENGTH)).all()


def test_a_rank_builds_without_asking_the_others(
    books: Path, code: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    def not_now(*_: object, **__: object) -> None:
        raise AssertionError("a collective")

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: 3)
    monkeypatch.setattr(torch.distributed, "barrier", not_now)
    source = open_split(indexed_job(["1", str(books), "1", str(code)]))
    assert source.batch([0]).tokens.shape == (1, LENGTH)
    assert torch.distributed.is_initialized()
    assert torch.distributed.get_rank() == 3
    assert list((cache / "megatron_indices").iterdir()) != []


def open_in_process(job: JobConfig, start: Any, told: Any) -> None:
    built: list[bool] = []

    def build_and_note(*arguments: Any, **named: Any) -> None:
        built.append(cache_module.build_once(*arguments, **named))

    indexed.build_once = build_and_note  # type: ignore[assignment]
    start.wait()
    told.put((open_split(job).batch(range(8)).tokens.tolist(), built))


def test_processes_that_open_at_once_build_one_index_and_read_the_same(books: Path) -> None:
    processes = multiprocessing.get_context("fork")
    start, told = processes.Barrier(3), processes.Queue()
    job = indexed_job(books)
    ranks = [processes.Process(target=open_in_process, args=(job, start, told)) for _ in range(3)]
    for rank in ranks:
        rank.start()
    answers = [told.get(timeout=60) for _ in ranks]
    for rank in ranks:
        rank.join(timeout=60)
    assert answers[0][0] == answers[1][0] == answers[2][0]
    assert sorted(built for _, built in answers) == [[False], [False], [True]]


def index_files(cache: Path) -> list[Path]:
    return sorted((cache / "megatron_indices").rglob("*.npy"))


def test_an_index_is_built_once_and_again_when_it_is_damaged(books: Path, cache: Path) -> None:
    job = indexed_job(books)
    before = open_split(job).batch(range(8)).tokens
    made = {file: file.stat().st_mtime_ns for file in index_files(cache)}
    open_split(job)
    assert {file: file.stat().st_mtime_ns for file in index_files(cache)} == made
    damaged = index_files(cache)[0]
    damaged.write_bytes(damaged.read_bytes()[:-8])
    assert open_split(job).batch(range(8)).tokens.equal(before)
    assert damaged.stat().st_mtime_ns != made[damaged]


def test_other_data_under_the_same_name_do_not_get_the_old_index(books: Path) -> None:
    job = indexed_job(books, overrides={"data.order": "sequential"})
    open_split(job)
    write_indexed(books, [*numbered_documents(60)[::-1]])
    assert open_split(job).batch([0]).tokens[0].tolist() == stream(books, range(54))[:LENGTH]


def test_other_settings_get_an_index_of_their_own(books: Path) -> None:
    first = [
        open_split(indexed_job(books, overrides={"training.seed": seed})).batch(range(8)).tokens for seed in (1, 2)
    ]
    assert not first[0].equal(first[1])


def test_a_node_that_does_not_see_the_data_is_told_which_files(books: Path) -> None:
    job = indexed_job(books)
    context = context_of(job)
    config = GPTDatasetConfig(**dataset_kwargs(job, context))
    bin_file(books).unlink()
    with pytest.raises(HostError, match=r"not on this node: \S+books.bin"):
        open_indexed(config, job, context, "train", samples=4)


def test_upstreams_data_set_draws_the_same_samples(books: Path, tokenizer: Path) -> None:
    job = indexed_job(books, tokenizer)
    dataset = open_dataset(job, context_of(job), "train", samples=16, masks=True)
    batch = open_split(job).batch(range(16))
    assert torch.stack([dataset[position]["tokens"] for position in range(16)]).equal(batch.tokens)
    assert batch.attention_mask is not None
    assert dataset[3]["attention_mask"].equal(batch.attention_mask[3])


def test_a_document_of_any_token_type_reads_alike(tmp_path: Path) -> None:
    rows = []
    for dtype in ("<u2", "<i4", "<u4"):
        prefix = write_indexed(tmp_path / dtype[1:], numbered_documents(60), dtype=dtype)
        rows.append(open_split(indexed_job(prefix)).batch(range(8)).tokens.numpy())
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])
