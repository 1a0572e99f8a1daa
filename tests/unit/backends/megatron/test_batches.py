from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from primus_hydra.backends.megatron.batches import Batch, BatchSource, MicrobatchIterator, open_batches
from primus_hydra.backends.megatron.dataset import open_dataset
from primus_hydra.backends.torchtitan.dataloader import SampleDataLoader, open_ordered
from primus_hydra.config.layout import Layout, layout_of
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepare import open_samples, prepare_data
from primus_hydra.data.prepared import PreparedData
from tests.support import make_job
from tests.unit.backends.torchtitan.rank_context import MOCK, context_for

FIELDS = ("tokens", "labels", "position_ids")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of short documents, and a cache that the tests of this module share."""
    folder = tmp_path_factory.mktemp("text")
    lines = (f'{{"text": "document {number} says {"more " * (number % 7)}of it"}}\n' for number in range(200))
    (folder / "a.jsonl").write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIMUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield folder


def text_job(folder: Path, **overrides: Any) -> JobConfig:
    small = {"data.kind": "text", "data.path": str(folder), "tokenizer.vocab_size": 300, "training.seq_length": 32}
    sizes = {"training.global_batch_size": 8, "training.micro_batch_size": 2, "parallel.dp_shard": 2}
    return make_job({**small, **sizes, **{name.replace("__", "."): value for name, value in overrides.items()}})


def core_config(layers: str = "local") -> Any:
    return SimpleNamespace(dataset=None, model=SimpleNamespace(layer_implementation=layers))


def prepared(job: JobConfig) -> PreparedData:
    return prepare_data(job, report=lambda _: None)


def open_job(job: JobConfig, split: Any = "train", layers: str = "local") -> BatchSource:
    return open_batches(core_config(layers), job, context_for(job, data=prepared(job)), split)


def layout(job: JobConfig) -> Layout:
    found, problems = layout_of(job)
    assert found is not None, problems
    return found


def step(source: BatchSource, job: JobConfig, number: int, rank: int) -> list[Batch]:
    size = job.training.global_batch_size
    return list(
        MicrobatchIterator(source, layout(job), consumed_samples=number * size, dp_rank=rank, global_batch_size=size)
    )


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
@pytest.mark.parametrize("document_mask", [True, False])
def test_both_backends_read_the_same_batches_in_the_same_order(text: Path, order: str, document_mask: bool) -> None:
    job = text_job(text, data__order=order, data__document_mask=document_mask)
    source = open_job(job)
    for rank in range(2):
        loader = SampleDataLoader.Config(open_split=lambda: open_ordered(prepared(job), job, "train"))
        theirs = islice(loader.build(dp_world_size=2, dp_rank=rank, local_batch_size=2, seq_len=32), 3 * 2)
        ours = (batch for number in range(3) for batch in step(source, job, number, rank))
        for batch, (inputs, labels) in zip(ours, theirs, strict=True):
            assert batch.tokens.equal(inputs["input"])
            assert batch.labels.equal(labels)
            assert batch.position_ids.equal(inputs["positions"])


def test_shuffled_samples_are_not_sequential_ones(text: Path) -> None:
    first = [step(open_job(job), job, 0, 0)[0] for job in (text_job(text), text_job(text, data__order="sequential"))]
    assert not first[0].tokens.equal(first[1].tokens)


def test_a_batch_has_the_types_that_megatron_takes(text: Path) -> None:
    job = text_job(text)
    batch = open_job(job).batch([0, 1, 2])
    assert {getattr(batch, name).dtype for name in FIELDS} == {torch.int64}
    assert {tuple(getattr(batch, name).shape) for name in (*FIELDS, "loss_mask")} == {(3, 32)}
    assert (batch.loss_mask.dtype, batch.loss_mask.min().item()) == (torch.float32, 1.0)
    assert batch.documents is not None
    assert batch.documents.dtype == torch.int32
    assert batch.attention_mask is not None
    assert (batch.attention_mask.dtype, tuple(batch.attention_mask.shape)) == (torch.bool, (3, 1, 32, 32))


def test_documents_change_where_positions_start_again(text: Path) -> None:
    batch = open_job(text_job(text)).batch(range(20))
    assert batch.documents is not None
    changes = batch.documents[:, 1:] != batch.documents[:, :-1]
    assert changes.equal(batch.position_ids[:, 1:] == 0)
    assert changes.sum() > 20


def test_only_local_layers_get_a_mask_and_only_with_a_document_mask(text: Path) -> None:
    packed = open_job(text_job(text), layers="transformer_engine").batch([0])
    assert packed.attention_mask is None
    assert packed.documents is not None
    plain = open_job(text_job(text, data__document_mask=False)).batch([0])
    assert (plain.attention_mask, plain.documents) == (None, None)


def test_random_tokens_are_one_document_each() -> None:
    job = make_job({"data.kind": "mock", "model.vocab_size": 512})
    batch = open_batches(core_config(), job, context_for(job, data=MOCK), "train").batch([0, 7])
    assert batch.documents is not None
    assert batch.documents.eq(0).all()
    assert batch.tokens[:, 1:].equal(batch.labels[:, :-1])


def test_a_step_that_ramps_up_takes_the_next_samples_in_fewer_microbatches(text: Path) -> None:
    job = text_job(text, data__order="sequential")
    source = open_job(job)
    for rank, positions in ((0, [6, 7]), (1, [8, 9])):
        ramped = MicrobatchIterator(source, layout(job), consumed_samples=6, dp_rank=rank, global_batch_size=4)
        (batch,) = list(ramped)
        assert batch.tokens.equal(source.batch(positions).tokens)


@pytest.mark.parametrize(("degree", "micro"), [(1, 8), (1, 2), (4, 1)])
def test_a_global_batch_is_the_same_in_any_layout(text: Path, degree: int, micro: int) -> None:
    job = text_job(text, parallel__dp_shard=degree, training__micro_batch_size=micro)
    source = open_job(job)
    ranks = [step(source, job, 2, rank) for rank in range(degree)]
    rows = torch.cat([batch.tokens for row in zip(*ranks, strict=True) for batch in row])
    assert rows.equal(source.batch(range(16, 24)).tokens)


def test_positions_go_on_over_the_epochs(text: Path) -> None:
    job = text_job(text, data__order="sequential")
    source = open_job(job)
    size = len(source)
    assert size == len(open_samples(prepared(job), job, "train"))
    assert source.batch([size - 1, size]).tokens[1].equal(source.batch([0]).tokens[0])


def test_validation_reads_the_held_out_documents_as_they_lie(text: Path) -> None:
    job = text_job(text, data__validation_fraction=0.2)
    source, samples = open_job(job, "validation"), open_samples(prepared(job), job, "validation")
    assert len(source) == len(samples)
    assert source.batch([1]).tokens[0].tolist() == samples.sample(1).inputs.tolist()


def test_upstreams_data_set_gives_the_same_samples_one_by_one(text: Path) -> None:
    job = text_job(text)
    context = context_for(job, data=prepared(job))
    dataset = open_dataset(job, context, "train", samples=40, masks=True)
    batch = open_job(job).batch([39])
    item = dataset[39]
    assert len(dataset) == 40
    assert set(item) == {*FIELDS, "loss_mask", "attention_mask"}
    assert all(value.equal(getattr(batch, name)[0]) for name, value in item.items())
    with pytest.raises(IndexError):
        dataset[40]


def test_upstreams_data_set_gives_a_causal_mask_where_documents_are_not_told_apart(text: Path) -> None:
    job = text_job(text, data__document_mask=False)
    context = context_for(job, data=prepared(job))
    item = open_dataset(job, context, "train", samples=1, masks=True)[0]
    assert item["attention_mask"].equal(torch.ones(1, 32, 32).triu(1).bool())
    assert "attention_mask" not in open_dataset(job, context, "train", samples=1, masks=False)[0]
