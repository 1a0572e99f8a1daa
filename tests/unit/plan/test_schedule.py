"""A schedule run on paper takes the time of its published closed form, and keeps what its papers say."""

from __future__ import annotations

import pytest

from primus_hydra.plan.schedule import Pipeline, most_in_flight, order, simulate, step_seconds


def pipeline(schedule: str, ranks: int, chunks: int, microbatches: int, **times: float) -> Pipeline:
    stages = ranks * chunks
    two_way = schedule in ("ZBVZeroBubble", "DualPipeV")
    owners = [2 * ranks - 1 - stage if two_way and stage >= ranks else stage % ranks for stage in range(stages)]
    return Pipeline(
        schedule=schedule, ranks=ranks, rank_of=tuple(owners), microbatches=microbatches,
        forward=(times.get("forward", 1.0) / chunks,) * stages,
        backward=(times.get("backward", 2.0) / chunks,) * stages,
        passed=times.get("passed", 0.0),
    )  # fmt: skip


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 2), (4, 4), (4, 16), (8, 8)])
def test_1f1b_and_gpipe_wait_for_one_microbatch_per_further_rank(ranks: int, microbatches: int) -> None:
    for schedule in ("1F1B", "GPipe"):
        assert simulate(pipeline(schedule, ranks, 1, microbatches)).seconds == pytest.approx(
            3 * (microbatches + ranks - 1)
        )


@pytest.mark.parametrize(("ranks", "chunks", "microbatches"), [(4, 2, 8), (4, 4, 8), (8, 5, 16)])
def test_interleaved_chunks_divide_the_wait(ranks: int, chunks: int, microbatches: int) -> None:
    run = simulate(pipeline("Interleaved1F1B", ranks, chunks, microbatches))

    assert run.seconds == pytest.approx(3 * (microbatches + (ranks - 1) / chunks))


@pytest.mark.parametrize("schedule", ["InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"])
def test_gradients_of_weights_fill_most_of_the_wait(schedule: str) -> None:
    split, plain = simulate(pipeline(schedule, 4, 2, 16)), simulate(pipeline("Interleaved1F1B", 4, 2, 16))

    assert 48 <= split.seconds < plain.seconds
    assert split.bubble < plain.bubble * (1 if schedule == "InterleavedZeroBubble" else 0.75)


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [("1F1B", 1), ("GPipe", 1), ("Interleaved1F1B", 2), ("Interleaved1F1B", 4), ("ZBVZeroBubble", 2)],
)
def test_ranks_keep_as_many_forwards_as_the_formula_says(schedule: str, chunks: int) -> None:
    run = simulate(pipeline(schedule, 4, chunks, 16))
    stated = [most_in_flight(schedule, 4, chunks, 16, rank) for rank in range(4)]

    assert all(seen <= said for seen, said in zip(run.in_flight, stated, strict=True))
    if schedule != "ZBVZeroBubble":
        assert list(run.in_flight) == stated


def test_many_microbatches_take_what_running_them_all_takes() -> None:
    long = pipeline("Interleaved1F1B", 4, 2, 200, passed=0.01)

    assert step_seconds(long)[0] == pytest.approx(simulate(long).seconds)


def test_the_order_runs_every_forward_and_backward_once() -> None:
    for rank in range(4):
        work = [(op.kind, op.chunk, op.microbatch) for op in order(pipeline("Interleaved1F1B", 4, 2, 8), rank)]
        assert len(work) == len(set(work)) == 2 * 2 * 8


def test_what_is_sent_between_ranks_delays_the_next() -> None:
    assert simulate(pipeline("1F1B", 2, 1, 1, passed=0.5)).seconds == 1 + 0.5 + 1 + 2 + 0.5 + 2
