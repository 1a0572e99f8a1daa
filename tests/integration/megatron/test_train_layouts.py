"""Ranks in every layout train what one rank trains: same samples, same first weights, losses equal within noise."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.integration.ranked.driver import Result
from tests.integration.ranked.lab import STEPS, Lab
from tests.unit.backends.megatron.jobs import LATENT

pytestmark = pytest.mark.ranks

# Ranks sum in another order. One float32 rounding of a loss near 6 is 5e-7, and twenty updates could carry differences
# on. Measured maxima over 20 steps: 0 for plain data parallelism, 2.4e-7 to 4.8e-7 for every other layout here.
NOISE = 5e-6
QUIET = {"checkpoint.enable": False, "validation.every": STEPS}
SEED = {"backend.config": {"checkpoint": {"create_seed": True}}}
DEEP = {"model.num_hidden_layers": 4, "training.micro_batch_size": 1}
EXPERTS = (
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "first_k_dense_replace",
)
SPARSE = {**LATENT, "model.num_hidden_layers": 2, "model.aux_loss_alpha": 0.01}
"""A dense layer and one with eight experts, both with latent attention."""
LOW_RANK = {
    **{key: value for key, value in LATENT.items() if key.removeprefix("model.") not in EXPERTS},
    "model.num_hidden_layers": 2,
    "model.q_lora_rank": 16,
}
"""Latent attention of queries as well, without experts."""
OVERLAP = {
    "backend.config": {
        "ddp": {"overlap_grad_reduce": True, "bucket_size": 10000},
        "optimizer": {"overlap_param_gather": True},
    }
}

MODELS: dict[str, dict[str, Any]] = {"dense": {}, "deep": DEEP, "sparse": SPARSE, "latent": LOW_RANK}
LAYOUTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "tp": ("dense", {"parallel.tp": 2, "parallel.sequence_parallel": False}, 0),
    "tp from weights of its own": ("dense", {"parallel.tp": 2, "init_from": None}, 0),
    "tp with sequence parallel": ("dense", {"parallel.tp": 2}, 0),
    "pp": ("dense", {"parallel.pp": 2}, 1),
    "pp with virtual stages": (
        "deep",
        {"parallel.pp": 2, "parallel.vpp": 2, "parallel.pipeline_schedule": "Interleaved1F1B"},
        1,
    ),
    "dp": ("dense", {"parallel.dp_shard": 2, "parallel.sharding": "none"}, 0),
    "dp with sharded optimizer": ("dense", {"parallel.dp_shard": 2, "parallel.sharding": "optimizer"}, 0),
    "dp with overlap": ("dense", {"parallel.dp_shard": 2, **OVERLAP}, 0),
    "ep": ("sparse", {"parallel.dp_shard": 2, "parallel.ep": 2}, 0),
    "tp around experts": ("sparse", {"parallel.tp": 2, "parallel.etp": 1}, 0),
    "tp inside experts": ("sparse", {"parallel.tp": 2, "parallel.etp": 2}, 0),
    "pp of experts": ("sparse", {"parallel.pp": 2}, 1),
    "tp of latent attention": ("latent", {"parallel.tp": 2, "parallel.sequence_parallel": False}, 0),
}
"""Layout of two ranks -> model, overrides, and the rank that owns the loss."""

ONE_RANK: dict[str, tuple[dict[str, Any], int | None]] = {
    "recompute full": ({"recompute.mode": "full"}, 8),
    "recompute selective": ({"recompute.mode": "selective"}, 8),
    "bf16": ({"precision.compute": "bfloat16"}, 10),
    "fp16": ({"precision.compute": "float16"}, 14),
    "ramp": ({"backend.config": {"batch": {"rampup": [2, 2, 10]}}}, 8),
    "rarely logged": ({"metrics.log_every": 8, "training.steps": 12, "validation.every": 5}, None),
}
"""Variant on one rank -> overrides, and the step after which it stops: the schedule stays that of all steps."""


@pytest.fixture(scope="module")
def alone(lab: Lab) -> dict[str, Result]:
    """Train each model on one rank from a seed checkpoint, and the variants, all in one process after each other."""
    seeds = {f"{name} seed": lab.scenario(f"{name} seed", {**model, **SEED}) for name, model in MODELS.items()}
    models = {name: lab.scenario(name, {**model, **QUIET, **start_of(lab, name)}) for name, model in MODELS.items()}
    variants = {
        name: lab.scenario(name, {**QUIET, **settings}, stop_at=stop) for name, (settings, stop) in ONE_RANK.items()
    }
    stopped = {"stopped": lab.scenario("stopped", {"validation.enable": False}, stop_at=7)}
    scenarios = {**seeds, **models, **variants, **stopped}
    (results,) = lab.train(1, *scenarios.values())
    assert [result.error for result in results] == [None] * len(results)
    return dict(zip(scenarios, results, strict=True))


@pytest.fixture(scope="module")
def split(lab: Lab, alone: dict[str, Result]) -> dict[str, list[Result]]:
    """Train in every layout on two ranks, in one pair of processes; what each rank saw."""
    scenarios = [
        lab.scenario(name, {**MODELS[model], **QUIET, **start_of(lab, model), **layout})
        for name, (model, layout, _) in LAYOUTS.items()
    ]
    results = lab.train(2, *scenarios)
    return {name: [ranks[number] for ranks in results] for number, name in enumerate(LAYOUTS)}


def start_of(lab: Lab, model: str) -> dict[str, Any]:
    return {"init_from": str(lab.checkpoint(f"{model} seed", 0))}


def values(result: Result, name: str) -> list[float]:
    return [entry[name] for entry in result.metrics if entry["validation_loss"] is None]


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_ranks_agree_with_one_from_the_same_weights(
    name: str, alone: dict[str, Result], split: dict[str, list[Result]]
) -> None:
    model, _, reporter = LAYOUTS[name]
    ranks, expected = split[name], alone[model]
    assert [rank.error for rank in ranks] == [None, None]
    assert [bool(rank.metrics) for rank in ranks] == [rank == reporter for rank in range(2)]
    result = ranks[reporter]
    assert values(result, "step") == list(range(1, STEPS + 1))
    assert values(result, "loss") == pytest.approx(values(expected, "loss"), abs=NOISE)
    assert values(result, "grad_norm") == pytest.approx(values(expected, "grad_norm"), rel=3e-4)
    assert result.metrics[-1]["validation_loss"] == pytest.approx(expected.metrics[-1]["validation_loss"], abs=NOISE)
    assert values(result, "lr") == values(expected, "lr")


def test_the_loss_falls_and_every_step_is_reported(alone: dict[str, Result]) -> None:
    losses = values(alone["dense"], "loss")
    assert len(losses) == STEPS
    assert losses[-1] < losses[0] - 0.5
    last = alone["dense"].metrics[-1]
    assert last["extra"] == {"tokens_seen": STEPS * 4 * 64}
    assert last["validation_loss"] == pytest.approx(losses[-1], abs=0.3)
    assert last["tokens_per_s"] > 0
    assert last["tflops_per_rank"] > 0


def test_losses_that_balance_experts_are_reported(alone: dict[str, Result], split: dict[str, list[Result]]) -> None:
    expected = alone["sparse"].metrics[-1]["extra"]["seq_load_balancing_loss"]
    assert expected > 0
    for name in ("ep", "tp around experts", "tp inside experts", "pp of experts"):
        extra = split[name][LAYOUTS[name][2]].metrics[-1]["extra"]
        assert extra["seq_load_balancing_loss"] == pytest.approx(expected, rel=1e-4), name


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_recomputation_changes_no_bit(mode: str, alone: dict[str, Result]) -> None:
    # The dense model starts from a checkpoint of the weights that the others draw.
    losses = alone[f"recompute {mode}"].losses
    assert len(losses) == 8
    assert losses == {step: loss for step, loss in alone["dense"].losses.items() if step <= 8}


def test_bf16_trains_close_to_float32(alone: dict[str, Result]) -> None:
    losses, expected = values(alone["bf16"], "loss"), values(alone["dense"], "loss")[:10]
    assert losses == pytest.approx(expected, abs=0.03)
    assert losses != expected


def test_fp16_skips_steps_whose_gradients_overflow_and_counts_them(alone: dict[str, Result]) -> None:
    result = alone["fp16"]
    skipped = [entry["step"] for entry in result.metrics if entry["grad_norm"] is None]
    assert skipped
    assert skipped[0] == 1
    assert result.metrics[-1]["extra"]["skipped_steps"] == len(skipped)
    assert result.metrics[-1]["extra"]["loss_scale"] < 65536
    losses = values(result, "loss")
    assert losses[-1] < losses[0] - 0.3
    assert values(result, "lr") == values(alone["dense"], "lr")[:14]


def test_a_batch_size_ramps_up_over_the_samples_of_the_beginning(alone: dict[str, Result]) -> None:
    sizes = [entry["extra"]["global_batch_size"] for entry in alone["ramp"].metrics]
    assert sizes == [2, 2, 2, 2, 2, 4, 4, 4]
    seen = [entry["extra"]["tokens_seen"] for entry in alone["ramp"].metrics]
    assert [int(tokens / 64) for tokens in seen] == [2, 4, 6, 8, 10, 14, 18, 22]


def test_a_stop_is_saved_and_ends_the_training(lab: Lab, alone: dict[str, Result]) -> None:
    stopped = alone["stopped"]
    assert (stopped.last_step, stopped.completed) == (7, [7])
    assert lab.checkpoints("stopped") == ["step-7"]
    assert values(stopped, "loss") == values(alone["dense"], "loss")[:7]


def test_last_and_validated_steps_are_logged_too(alone: dict[str, Result]) -> None:
    result = alone["rarely logged"]
    assert values(result, "step") == [5, 8, 10, 12]
    validated = [entry for entry in result.metrics if entry["validation_loss"] is not None]
    assert [entry["step"] for entry in validated] == [5, 10, 12]
    assert all(math.isfinite(entry["validation_loss"]) for entry in validated)


def test_a_loss_that_is_not_a_number_ends_the_run_with_its_step(lab: Lab) -> None:
    ((result,),) = lab.train(1, lab.scenario("diverged", {"optimizer.lr": 1e30, "validation.enable": False}))
    assert result.error is not None
    assert "of step 2 is nan" in result.error
    assert "lower it" in result.error
    assert result.completed == []


def test_a_rank_that_breaks_does_not_leave_the_other_hanging(lab: Lab) -> None:
    breaking = lab.scenario("broken", {"parallel.dp_shard": 2, "validation.enable": False}, fail_at=3)
    first, second = lab.train(2, breaking)
    assert first[0].error == "RuntimeError: the rank breaks"
    assert second[0].error is not None
    assert (first[0].last_step, second[0].last_step) == (3, 3)
