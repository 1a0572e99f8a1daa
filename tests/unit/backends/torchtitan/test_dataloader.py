from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from primus_hydra.backends.torchtitan.dataloader import OrderedSamples, SampleDataLoader, open_ordered
from primus_hydra.config.layout import layout_of
from primus_hydra.data.order import SampleOrder, batch_indices
from primus_hydra.data.samples import Sample
from tests.support import make_job
from tests.unit.backends.torchtitan.rank_context import MOCK

LENGTH, SIZE = 4, 10


class Numbered:
    """Samples that hold their own number."""

    def __len__(self) -> int:
        return SIZE

    def sample(self, index: int) -> Sample:
        row = np.full(LENGTH, index, dtype=np.int64)
        return Sample(inputs=row, labels=row + 1, positions=np.arange(LENGTH, dtype=np.int64))


def order() -> SampleOrder:
    return SampleOrder(SIZE, seed=7, kind="shuffled")


def make_loader(*, ranks: int, rank: int, micro: int, infinite: bool = True) -> Any:
    config = SampleDataLoader.Config(
        open_split=lambda: OrderedSamples(samples=Numbered(), order=order()), infinite=infinite
    )
    return config.build(dp_world_size=ranks, dp_rank=rank, local_batch_size=micro, seq_len=LENGTH)


def numbers(batch: Any) -> list[int]:
    return [int(row[0]) for row in batch[0]["input"]]


@pytest.mark.parametrize(("ranks", "micro"), [(1, 1), (1, 4), (2, 2), (4, 1), (2, 1)])
def test_a_global_batch_holds_the_same_samples_in_any_layout(ranks: int, micro: int) -> None:
    loaders = [iter(make_loader(ranks=ranks, rank=rank, micro=micro)) for rank in range(ranks)]
    for step in range(6):
        batch = [number for _ in range(4 // (ranks * micro)) for loader in loaders for number in numbers(next(loader))]
        assert batch == order().indices(range(4 * step, 4 * step + 4))


def test_a_rank_reads_what_the_order_of_the_data_gives_it() -> None:
    job = make_job({"parallel.dp_shard": 2, "training.micro_batch_size": 1})
    layout, _ = layout_of(job)
    assert layout is not None
    loader = iter(make_loader(ranks=2, rank=1, micro=1))
    for step in range(5):
        for microbatch in range(layout.microbatches):
            wanted = batch_indices(order(), layout, consumed_samples=4 * step, dp_rank=1, microbatch=microbatch)
            assert numbers(next(loader)) == wanted


def test_the_state_is_one_number_for_all_ranks_and_any_number_of_them() -> None:
    before = [make_loader(ranks=2, rank=rank, micro=2) for rank in range(2)]
    for loader in before:
        list(islice(iter(loader), 3))
    states = [loader.state_dict() for loader in before]
    assert states == [{"consumed_samples": 12}] * 2
    after = make_loader(ranks=1, rank=0, micro=4)
    after.load_state_dict(states[0])
    assert numbers(next(iter(after))) == order().indices(range(12, 16))


def test_a_finite_loader_ends_at_the_same_batch_on_every_rank() -> None:
    for rank in range(2):
        assert len(list(make_loader(ranks=2, rank=rank, micro=2, infinite=False))) == SIZE // 4


def test_a_batch_has_inputs_labels_and_positions_of_one_shape() -> None:
    job = make_job({"data.kind": "mock", "model.vocab_size": 512})
    config = SampleDataLoader.Config(open_split=lambda: open_ordered(MOCK, job, "train"))
    inputs, labels = next(iter(config.build(dp_world_size=1, dp_rank=0, local_batch_size=2, seq_len=64)))
    assert {name: tuple(value.shape) for name, value in inputs.items()} == {"input": (2, 64), "positions": (2, 64)}
    assert inputs["input"][:, 1:].equal(labels[:, :-1])
