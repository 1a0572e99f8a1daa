import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.config.layout import Layout
from primus_hydra.data.order import SampleOrder, batch_indices, batch_positions


def layout(dp: int, micro: int, global_batch: int) -> Layout:
    return Layout(
        nodes=1,
        ranks_per_node=dp,
        tp=1,
        pp=1,
        cp=1,
        ep=1,
        dp_shard=dp,
        dp_replicate=1,
        micro_batch_size=micro,
        global_batch_size=global_batch,
    )


def global_batch(order: SampleOrder, where: Layout, step: int) -> list[int]:
    consumed = step * where.global_batch_size
    return [
        index
        for microbatch in range(where.microbatches)
        for rank in range(where.dp)
        for index in batch_indices(order, where, consumed_samples=consumed, dp_rank=rank, microbatch=microbatch)
    ]


@given(length=st.integers(1, 200), seed=st.integers(0, 2**32), epoch=st.integers(0, 5))
def test_a_shuffled_epoch_holds_every_sample_once(length, seed, epoch):
    order = SampleOrder(length, seed=seed, kind="shuffled")
    assert sorted(order.indices(range(epoch * length, (epoch + 1) * length))) == list(range(length))


def test_epochs_and_seeds_differ_and_a_position_can_be_asked_for_in_any_order():
    order = SampleOrder(50, seed=1, kind="shuffled")
    first, second = order.indices(range(50)), order.indices(range(50, 100))
    assert first != second
    assert first != SampleOrder(50, seed=2, kind="shuffled").indices(range(50))
    assert [order.index(position) for position in (70, 3, 69)] == [second[20], first[3], second[19]]


def test_the_shuffle_never_changes():
    assert SampleOrder(10, seed=42, kind="shuffled").indices(range(12)) == [4, 8, 1, 9, 3, 6, 0, 7, 2, 5, 1, 2]


def test_a_sequential_order_repeats_without_end():
    assert SampleOrder(3, seed=0, kind="sequential").indices(range(7)) == [0, 1, 2, 0, 1, 2, 0]


def test_an_epoch_without_samples_is_refused():
    with pytest.raises(ValueError, match="at least one sample"):
        SampleOrder(0, seed=0, kind="sequential")


@given(
    samples=st.integers(1, 60),
    step=st.integers(0, 30),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["shuffled", "sequential"]),
)
def test_the_global_batch_is_the_same_for_every_split_over_ranks(samples, step, seed, kind):
    batches = [
        global_batch(SampleOrder(samples, seed=seed, kind=kind), layout(dp, micro, 16), step)
        for dp in (1, 2, 4)
        for micro in (1, 2, 4)
    ]
    assert all(batch == batches[0] for batch in batches)
    assert len(batches[0]) == 16


def test_steps_read_on_without_gap_or_repeat_also_after_a_change_of_ranks():
    order = SampleOrder(1000, seed=3, kind="shuffled")
    seen = [*global_batch(order, layout(1, 4, 8), 0), *global_batch(order, layout(4, 1, 8), 1)]
    assert seen == order.indices(range(16))


def test_ranks_of_a_microbatch_lie_side_by_side():
    where = layout(2, 3, 12)
    rows = [
        batch_positions(where, consumed_samples=24, dp_rank=rank, microbatch=microbatch)
        for microbatch in (0, 1)
        for rank in (0, 1)
    ]
    assert rows == [range(24, 27), range(27, 30), range(30, 33), range(33, 36)]
