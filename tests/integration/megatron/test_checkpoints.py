"""A run goes on bit by bit where it was saved, in every layout; in another layout it goes on within float noise."""

from __future__ import annotations

import itertools
from importlib.metadata import version
from typing import Any

import pytest

from primus_hydra.run.checkpoints import find_checkpoint
from primus_hydra.run.paths import RunPaths
from tests.integration.ranked import sizes
from tests.integration.ranked.driver import Result, Scenario
from tests.integration.ranked.lab import Lab
from tests.unit.backends.megatron.jobs import LATENT

pytestmark = pytest.mark.ranks

# megatron-core 0.17 and later keep in metadata.json what 0.16 has a file of its own for.
LAST_READ = "common.pt" if version("megatron-core").startswith("0.16") else "metadata.json"

# Ranks sum in another order; the largest difference seen over the two steps is 5e-7, one rounding of a loss near 6.
NOISE = 3e-6
SHORT = {
    "training.steps": 4,
    "training.global_batch_size": 2,
    "training.micro_batch_size": 1,
    "checkpoint.every": 2,
    "validation.enable": False,
}
DROPOUT = {"transformer": {"hidden_dropout": 0.1, "attention_dropout": 0.1}}
BUCKETS = {"checkpoint": {"optimizer_format": "dp_reshardable"}}
IN_PARALLEL = {"checkpoint": {"fully_parallel_save": True, "fully_parallel_load": True}}

TP = {"parallel.tp": 2, "parallel.sequence_parallel": False}
PP = {"parallel.pp": 2}
DP = {"parallel.dp_shard": 2, "parallel.sharding": "none"}
SHARDED = {"parallel.dp_shard": 2, "parallel.sharding": "optimizer"}
BF16 = {"precision.compute": "bfloat16"}
SPARSE = {**LATENT, "model.num_hidden_layers": 2, "model.aux_loss_alpha": 0.01}
EP = {**SPARSE, **SHARDED, "parallel.ep": 2}

ONE_RANK: dict[str, dict[str, Any]] = {
    "one": {},
    "one with dropout": {"backend.config": DROPOUT},
    "one in bf16": BF16,
    "one with experts": SPARSE,
}
TWO_RANKS: dict[str, dict[str, Any]] = {
    "tp": TP,
    "tp with sequence parallel": {"parallel.tp": 2, "backend.config": DROPOUT},
    "pp": PP,
    "pp with virtual stages": {
        **PP,
        "parallel.vpp": 2,
        "parallel.pipeline_schedule": "Interleaved1F1B",
        "model.num_hidden_layers": 4,
        "backend.config": DROPOUT,
    },
    "dp": {**DP, "backend.config": DROPOUT},
    "sharded": {**SHARDED, "backend.config": IN_PARALLEL},
    "sharded by buckets": {**SHARDED, "backend.config": {**DROPOUT, **BUCKETS}},
    "sharded in bf16": {**SHARDED, **BF16},
    "ep": EP,
}
"""Saved at step 2 and resumed as they are. Where there is dropout, its draws must go on as well."""

RESHARDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("one", "tp", TP),
    ("one", "pp", PP),
    ("one", "sharded", SHARDED),
    ("one in bf16", "sharded", {**SHARDED, **BF16}),
    ("one with experts", "ep", EP),
    ("tp", "one", {}),
    ("pp", "one", {}),
    ("sharded", "tp", TP),
    ("sharded", "one", {}),
    ("sharded in bf16", "one", BF16),
    ("ep", "one", SPARSE),
)
"""A run of those above, and the layout in which it is resumed."""


def job(lab: Lab, run: str, overrides: dict[str, Any], **changes: Any) -> Scenario:
    return lab.scenario(run, {**SHORT, **overrides}, **changes)


def losses(ranks: list[Result]) -> dict[int, float]:
    """Return the losses that one of the ranks reported, and check that none of them failed."""
    assert [rank.error for rank in ranks] == [None] * len(ranks)
    return next(rank.losses for rank in ranks if rank.metrics)


def by_scenario(results: list[list[Result]]) -> list[list[Result]]:
    return [list(ranks) for ranks in zip(*results, strict=True)]


Twice = dict[str, tuple[list[Result], list[Result]]]


@pytest.fixture(scope="module")
def twice(lab: Lab) -> Twice:
    """Train in every layout, and once more from step 2."""
    found: Twice = {}
    for world_size, runs in ((1, ONE_RANK), (2, TWO_RANKS)):
        straight = [job(lab, name, overrides, before=sizes.BEFORE) for name, overrides in runs.items()]
        again = [job(lab, name, overrides, resume_from=2) for name, overrides in runs.items()]
        results = by_scenario(lab.train(world_size, *straight, *again))
        found |= {name: (results[number], results[number + len(runs)]) for number, name in enumerate(runs)}
    return found


@pytest.fixture(scope="module")
def resharded(lab: Lab, twice: Twice) -> dict[tuple[str, str], list[Result]]:
    """Resume at step 2 in other layouts."""
    found: dict[tuple[str, str], list[Result]] = {}
    for world_size in (1, 2):
        cases = [case for case in RESHARDS if (case[1] == "one") == (world_size == 1)]
        scenarios = [job(lab, source, overrides, resume_from=2) for source, _, overrides in cases]
        results = by_scenario(lab.train(world_size, *scenarios))
        found |= {case[:2]: ranks for case, ranks in zip(cases, results, strict=True)}
    return found


@pytest.mark.parametrize("name", [*ONE_RANK, *TWO_RANKS])
def test_a_resumed_run_repeats_every_bit(name: str, twice: Twice) -> None:
    straight, again = twice[name]
    assert sorted(losses(straight)) == [1, 2, 3, 4]
    assert losses(again) == {step: losses(straight)[step] for step in (3, 4)}
    assert [rank.completed for rank in straight] == [[2, 4]] * len(straight)
    assert [rank.completed for rank in again] == [[4]] * len(again)


@pytest.mark.parametrize("name", [*ONE_RANK, *TWO_RANKS])
def test_the_size_of_a_save_is_known_before_it(name: str, lab: Lab, twice: Twice) -> None:
    assert 0 <= sizes.taken_too_large(lab.root / name) < 0.1


@pytest.mark.parametrize(("source", "target"), [case[:2] for case in RESHARDS])
def test_another_layout_goes_on_where_it_was_saved(
    source: str, target: str, twice: Twice, resharded: dict[tuple[str, str], list[Result]]
) -> None:
    expected = {step: loss for step, loss in losses(twice[source][0]).items() if step > 2}
    # bfloat16 keeps 8 bits of what ranks add up in another order.
    assert losses(resharded[source, target]) == pytest.approx(expected, abs=2e-3 if "bf16" in source else NOISE)


@pytest.fixture(scope="module")
def refused(lab: Lab, twice: Twice) -> dict[str, Result]:
    """Try to go on where that cannot be; what the first rank said."""
    lab.copy("one", "damaged")
    shard = lab.checkpoint("damaged", 2) / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-2000])
    lab.copy("one", "incomplete")
    (lab.checkpoint("incomplete", 2) / LAST_READ).unlink()
    one_rank = {
        "wider": job(lab, "one", {"model.hidden_size": 128}, resume_from=2),
        "deeper": job(lab, "one", {"model.num_hidden_layers": 4}, resume_from=2),
        "tied": job(lab, "one", {"model.tie_word_embeddings": True}, resume_from=2),
        "damaged": job(lab, "damaged", {}, resume_from=2),
        "incomplete": job(lab, "incomplete", {}, resume_from=2),
        "whole": job(lab, "sharded by buckets", {}, resume_from=2),
        "other weights": job(lab, "fresh", {"init_from": str(lab.checkpoint("one with experts", 2))}),
    }
    (results,) = lab.train(1, *one_rank.values())
    split = job(lab, "sharded by buckets", TP, resume_from=2)
    both = lab.train(2, split)
    assert both[0][0].error == both[1][0].error
    return {**dict(zip(one_rank, results, strict=True)), "split": both[0][0]}


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("wider", "UserError: resume", "decoder.final_layernorm.weight is 64 there and 128 here"),
        ("deeper", "UserError: resume", "is 2x64 there and 4x64 here"),
        ("tied", "UserError: resume", "output_layer.weight is only there"),
        ("damaged", "HostError", "the checkpoint cannot be read: rank 0"),
        ("incomplete", "HostError", f"it has no {LAST_READ}"),
        ("whole", "UserError: resume", "the optimizer is sharded there and whole here"),
        ("split", "UserError: resume", "parallel.tp is 1 there and 2 here"),
        ("other weights", "UserError: init_from", "experts"),
    ],
)
def test_what_cannot_go_on_is_refused_before_a_step(
    name: str, kind: str, words: str, refused: dict[str, Result]
) -> None:
    result = refused[name]
    assert result.error is not None
    assert result.error.startswith(kind)
    assert words in result.error
    assert "step-2" in result.error
    assert (result.losses, result.completed) == ({}, [])


def test_weights_alone_start_a_run_in_any_layout(lab: Lab, twice: Twice) -> None:
    start = {"init_from": str(lab.checkpoint("sharded", 2)), "checkpoint.enable": False}
    (one,) = by_scenario(lab.train(1, job(lab, "from weights", start)))
    (pp,) = by_scenario(lab.train(2, job(lab, "pp from weights", start | PP)))
    assert sorted(losses(one)) == [1, 2, 3, 4]
    assert losses(pp) == pytest.approx(losses(one), abs=NOISE)
    fresh = losses(twice["one"][0])
    assert losses(one)[1] < fresh[1] - 0.01


def test_a_save_in_the_background_holds_its_step_though_training_goes_on(lab: Lab, twice: Twice) -> None:
    background = {"checkpoint.async_mode": "async", "checkpoint.every": 1, **TP}
    before = "tests.integration.megatron.disks:slow"
    straight, again = by_scenario(
        lab.train(
            2, job(lab, "background", background, before=before), job(lab, "background", background, resume_from=2)
        )
    )
    assert losses(straight) == losses(twice["tp"][0])
    assert losses(again) == {step: losses(straight)[step] for step in (3, 4)}
    assert [rank.completed for rank in straight] == [[1, 2, 3, 4]] * 2
    for rank in range(2):
        # Never two at once: what is begun ends before another save begins, and so in the run that went on.
        notes = (lab.root / "background" / f"writes-{rank}.txt").read_text().splitlines()
        folders = [folder for folder, _ in itertools.groupby(note.split()[1] for note in notes)]
        assert folders == [f"step-{step}" for step in (1, 2, 3, 4, 3, 4)]


@pytest.mark.parametrize("mode", ["disabled", "async"])
def test_a_disk_that_fills_up_costs_a_save_and_only_at_the_end_the_run(lab: Lab, mode: str) -> None:
    settings = {**SHARDED, "checkpoint.keep": 1, "checkpoint.async_mode": mode}
    before = "tests.integration.megatron.disks:full"
    runs = {f"full {mode} {steps}": {**settings, "training.steps": steps} for steps in (4, 6)}
    last, going_on = by_scenario(lab.train(2, *(job(lab, run, runs[run], before=before) for run in runs)))
    for result in last:
        assert result.error is not None
        assert result.error.startswith(
            "HostError: step 4 could not be saved: rank 1: [Errno 28] No space left on device"
        )
        assert result.completed == [2]
    # What was written of step 4 does not keep the disk full.
    assert lab.checkpoints(f"full {mode} 4") == ["step-2"]
    assert [(result.error, result.completed) for result in going_on] == [(None, [2, 6])] * 2
    assert find_checkpoint(RunPaths(lab.root / f"full {mode} 6"), "auto").step == 6


def test_a_training_that_diverges_completes_the_save_on_its_way(lab: Lab) -> None:
    settings = {**TP, "training.steps": 6, "checkpoint.every": 2, "checkpoint.async_mode": "async"}
    before = "tests.integration.megatron.disks:diverging"
    (ranks,) = by_scenario(lab.train(2, job(lab, "diverged", settings, before=before)))
    for result in ranks:
        assert "the loss of step 3 is nan: the training has diverged" in (result.error or "")
        assert result.completed == [2]
    assert find_checkpoint(RunPaths(lab.root / "diverged"), "auto").step == 2


def test_the_newest_stay_and_some_for_good(lab: Lab) -> None:
    settings = {"training.steps": 7, "checkpoint.every": 1, "checkpoint.keep": 2, "checkpoint.keep_every": 3}
    (ranks,) = by_scenario(lab.train(1, job(lab, "kept", settings)))
    assert ranks[0].completed == [1, 2, 3, 4, 5, 6, 7]
    assert lab.checkpoints("kept") == ["step-3", "step-6", "step-7"]
