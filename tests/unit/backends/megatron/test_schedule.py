"""The learning rate of every step is torchtitan's for the same neutral keys."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchtitan.components.optimizer import LRSchedulersContainer

from primus_hydra.backends.megatron.native import core_config
from primus_hydra.backends.megatron.schedule import StepSchedule, lr_factor, weight_decay
from primus_hydra.backends.megatron.sections import Schedule
from primus_hydra.backends.torchtitan.native_0_3 import translate
from tests.support import make_job
from tests.unit.backends.megatron.jobs import megatron_job
from tests.unit.backends.torchtitan.rank_context import context_for

CONSTANT_DECAY = Schedule(
    warmup_steps=0,
    decay="constant",
    decay_steps=None,
    min_lr_ratio=0.0,
    steps=10,
    start_weight_decay=0.1,
    end_weight_decay=0.3,
)


def torchtitan_rates(overrides: dict[str, Any], steps: int) -> list[float]:
    """Return the rates that torchtitan's own scheduler sets, from the same neutral keys."""
    job = make_job({**overrides, "training.steps": steps})
    config: LRSchedulersContainer.Config = translate(job, context_for(job)).lr_scheduler
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=job.optimizer.lr)
    scheduler = config.build(optimizers=[optimizer], training_steps=steps)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("decay", ["cosine", "linear", "sqrt", "constant"])
@pytest.mark.parametrize(
    ("warmup", "decay_steps", "minimum"), [(0, None, 0.1), (5, None, 0.0), (3, 4, 0.2), (30, None, 0.1), (2, 0, 0.5)]
)
def test_every_step_has_the_rate_of_torchtitan(
    decay: str, warmup: int, decay_steps: int | None, minimum: float
) -> None:
    keys = {
        "lr_schedule.decay": decay,
        "lr_schedule.warmup_steps": warmup,
        "lr_schedule.decay_steps": decay_steps,
        "lr_schedule.min_lr_ratio": minimum,
    }
    job = megatron_job({**keys, "training.steps": 20})
    settings = core_config(job, context_for(job)).schedule
    rates = [job.optimizer.lr * lr_factor(settings, step) for step in range(20)]
    assert rates == pytest.approx(torchtitan_rates(keys, 20), rel=1e-12)
    assert len(set(rates)) > 1 or (decay == "constant" and not warmup) or decay_steps == 0


@pytest.mark.parametrize(
    ("style", "expected"),
    [("constant", [0.3, 0.3, 0.3]), ("linear", [0.1, 0.2, 0.28]), ("cosine", [0.1, 0.2, 0.2951])],
)
def test_weight_decay_moves_over_the_whole_run(style: Any, expected: list[float]) -> None:
    settings = dataclasses.replace(CONSTANT_DECAY, weight_decay_incr_style=style)
    assert [weight_decay(settings, step) for step in (0, 5, 9)] == pytest.approx(expected, abs=1e-4)


def test_groups_keep_their_own_peak_and_share_of_weight_decay() -> None:
    groups: list[dict[str, Any]] = [{"max_lr": 1.0, "wd_mult": 1.0}, {"max_lr": 0.5, "wd_mult": 0.0}]
    settings = dataclasses.replace(CONSTANT_DECAY, warmup_steps=4)
    schedule = StepSchedule(settings, SimpleNamespace(param_groups=groups))
    schedule.go_to(1)
    assert [group["lr"] for group in groups] == [0.5, 0.25]
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]
    assert schedule.lr == 0.5


def test_a_schedule_goes_on_where_it_was_saved() -> None:
    groups: list[dict[str, Any]] = [{"max_lr": 1.0}]
    settings = dataclasses.replace(CONSTANT_DECAY, warmup_steps=4)
    first = StepSchedule(settings, SimpleNamespace(param_groups=groups))
    first.go_to(2)
    second = StepSchedule(settings, SimpleNamespace(param_groups=groups))
    assert groups[0]["lr"] == 0.25
    second.load_state_dict(first.state_dict())
    assert (second.step, groups[0]["lr"]) == (2, 0.75)
