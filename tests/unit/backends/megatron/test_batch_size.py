"""Which ramps of the batch size can be followed, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from megatron.core.num_microbatches_calculator import unset_num_microbatches_calculator

from primus_hydra.backends.megatron.batch_size import batch_size, measured_samples, rampup_problems
from primus_hydra.backends.megatron.sections import Batch
from primus_hydra.config.layout import Layout
from primus_hydra.errors import UserError

LAYOUT = Layout(
    nodes=1,
    ranks_per_node=2,
    tp=1,
    pp=1,
    cp=1,
    ep=1,
    dp_shard=2,
    dp_replicate=1,
    micro_batch_size=2,
    global_batch_size=16,
)


@pytest.fixture(autouse=True)
def no_calculator() -> Iterator[None]:
    yield
    unset_num_microbatches_calculator()


def test_a_ramp_grows_with_the_samples_read() -> None:
    sizes = batch_size(Batch(rampup=[4, 4, 30]), LAYOUT, rank=0)
    seen = {consumed: sizes.at(consumed).global_batch_size for consumed in (0, 8, 12, 20, 28, 32, 100)}
    assert seen == {0: 4, 8: 4, 12: 8, 20: 12, 28: 12, 32: 16, 100: 16}
    assert sizes.at(12).microbatches == 2


def test_without_a_ramp_the_size_stays() -> None:
    sizes = batch_size(Batch(), LAYOUT, rank=0)
    assert {sizes.at(consumed).global_batch_size for consumed in (0, 1000)} == {16}


@pytest.mark.parametrize(
    ("rampup", "word"),
    [
        ([4, 4], "is not [first global batch size, increment, samples]"),
        ([0, 4, 100], "each at least 1"),
        ([16, 4, 100], "do not lead up to training.global_batch_size=16"),
        ([4, 5, 100], "steps of 5 from 4"),
        ([2, 2, 100], "a step of 2 samples"),
    ],
)
def test_a_ramp_that_no_step_can_follow_is_refused(rampup: list[int], word: str) -> None:
    (problem,) = rampup_problems(rampup, 16, 4)
    assert problem.key == "backend.config.batch.rampup"
    assert word in problem.what


def test_a_ramp_fits_the_groups_of_an_interleaved_pipeline() -> None:
    with pytest.raises(UserError, match="multiple of the 8"):
        batch_size(Batch(rampup=[4, 4, 30]), LAYOUT, rank=0, multiple_of_microbatches=2)


def test_a_measurement_takes_whole_microbatches_of_what_there_is() -> None:
    assert (measured_samples(32, 100, 4), measured_samples(32, 11, 4)) == (32, 8)
    with pytest.raises(UserError, match="3 validation samples are fewer than the 4"):
        measured_samples(32, 3, 4)
