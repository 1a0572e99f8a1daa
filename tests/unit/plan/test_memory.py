"""The plan says whether a job fits, and by which single changes it would."""

from __future__ import annotations

import dataclasses

import pytest

from primus_hydra.plan.memory import GIB, memory_of, peak, stage_memory, what_fits
from tests.unit.plan.settings import PLAIN_LOSS, job_of, setting

EIGHT = ("model=llama3_1_8b", "platform=h100", "training.micro_batch_size=2", "training.seq_length=8192",
         "recompute.mode=selective")  # fmt: skip


def gib(*overrides: str) -> float:
    return peak(memory_of(setting(*overrides))).total / GIB


def test_the_published_job_of_82_gib_does_not_fit_on_80_gb() -> None:
    capacity = job_of(*EIGHT, "training.global_batch_size=16").platform.memory_gib
    needed = gib(*EIGHT, "training.global_batch_size=16", PLAIN_LOSS)

    assert capacity is not None
    assert needed == pytest.approx(82.4, rel=0.03)
    assert needed > capacity


def test_the_same_job_on_128_gpus_fits_because_its_state_is_shared_by_more() -> None:
    assert gib(*EIGHT, "training.global_batch_size=256", "launch.nodes=16", PLAIN_LOSS) == pytest.approx(67.0, rel=0.03)


def test_a_loss_in_pieces_needs_the_logits_of_one_piece() -> None:
    whole = setting(*EIGHT, "training.global_batch_size=16", PLAIN_LOSS)
    pieces = setting(*EIGHT, "training.global_batch_size=16")

    assert (whole.loss_chunks, pieces.loss_chunks) == (1, 8)
    logits = [stage_memory(each, 0).logits for each in (whole, pieces)]
    assert logits[0] == 12 * whole.vocab * whole.tokens
    assert logits[1] - pieces.tokens * pieces.model.hidden_size * 2 == logits[0] / 8


def test_changes_that_are_offered_fit() -> None:
    job = setting(*EIGHT, "training.global_batch_size=16", PLAIN_LOSS)
    changes = what_fits(job, 79.6 * GIB)

    assert [change.override for change in changes][:2] == ["recompute.mode=full", "training.micro_batch_size=1"]
    for change in changes:
        rest = [word for word in EIGHT if word.partition("=")[0] not in change.override]
        words = [*rest, *change.override.split(), "training.global_batch_size=16", PLAIN_LOSS]
        assert gib(*words) == pytest.approx(change.peak / GIB)


def test_earlier_stages_keep_more_microbatches() -> None:
    job = setting("model=llama3_70b", "platform=h100", "backend=megatron", "parallel.tp=4", "parallel.pp=8",
                  "launch.nodes=8", "training.global_batch_size=128", "recompute.mode=none")  # fmt: skip
    stages = memory_of(job)

    assert [stage.in_flight for stage in stages] == [8, 7, 6, 5, 4, 3, 2, 1]
    middle = [stage.activations for stage in stages[1:-1]]
    assert middle == sorted(middle, reverse=True)
    assert stages[0].weights > stages[1].weights < stages[-1].weights, "embedding and output lie at the ends"


def test_sequence_parallelism_halves_what_tensor_parallelism_leaves_whole() -> None:
    words = ("model=llama3_8b", "platform=h100", "backend=megatron", "parallel.tp=8", "training.global_batch_size=8")
    split = setting(*words, "recompute.mode=full")
    whole = dataclasses.replace(split, sequence_parallel=False)

    layers = split.model.num_hidden_layers
    kept = [stage_memory(each, 0).activations for each in (split, whole)]
    entry = split.tokens * split.model.hidden_size * 2
    assert kept[1] - kept[0] > layers * entry * 7 / 8 * 0.99
