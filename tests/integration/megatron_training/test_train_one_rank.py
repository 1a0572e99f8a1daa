"""Upstream's loop on one process: it learns as our loop does, and keeps the promises of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.megatron_training.conftest import STEPS, Lab
from tests.integration.megatron_training.driver import Result

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def test_the_loss_falls(alone: dict[str, Result]) -> None:
    losses = alone["straight"].losses
    assert alone["straight"].error is None
    assert list(losses) == list(range(1, STEPS + 1))
    assert losses[STEPS] < losses[1] - 0.3


def test_every_step_equals_that_of_our_own_loop(alone: dict[str, Result]) -> None:
    upstream, ours = alone["straight"], alone["ours"]
    assert upstream.losses == pytest.approx(ours.losses, abs=1e-6)
    for key in ("lr", "grad_norm", "validation_loss"):
        told = [[entry[key] for entry in result.metrics if entry[key] is not None] for result in (upstream, ours)]
        assert told[0] == pytest.approx(told[1], rel=1e-5)
        assert len(told[0]) == (2 if key == "validation_loss" else STEPS + 2)


def test_a_resumed_run_repeats_every_bit(alone: dict[str, Result]) -> None:
    straight, resumed = alone["straight"].losses, alone["resumed"].losses
    assert alone["resumed"].error is None
    assert resumed == {step: loss for step, loss in straight.items() if step > 4}


def test_experts_equal_ours_and_resume_to_the_bit_beside_a_validation(alone: dict[str, Result]) -> None:
    straight, resumed = alone["experts"].losses, alone["experts resumed"].losses
    assert (alone["experts"].error, alone["experts resumed"].error) == (None, None)
    assert resumed == {step: loss for step, loss in straight.items() if step > 2}
    assert straight == pytest.approx(alone["our experts"].losses, abs=1e-6)


def test_an_agreed_stop_saves_its_step_and_returns(alone: dict[str, Result]) -> None:
    stopped, after = alone["stopped"], alone["stopped and resumed"]
    assert (stopped.error, stopped.last_step, stopped.completed) == (None, 3, [3])
    assert stopped.losses | after.losses == alone["straight"].losses


def test_saves_are_told_and_lie_in_the_folders_of_the_run_alone(lab: Lab, alone: dict[str, Result]) -> None:
    assert alone["straight"].completed == [4, STEPS]
    assert lab.checkpoints("straight") == {"step-4", f"step-{STEPS}"}


def test_saves_in_the_background_count_and_old_ones_go(lab: Lab, alone: dict[str, Result]) -> None:
    assert alone["async"].completed == [2, 4, 6, 8]
    assert lab.checkpoints("async") == {"step-4", "step-8"}


def test_without_room_a_save_is_skipped_but_not_the_last_one(lab: Lab, alone: dict[str, Result]) -> None:
    # Of the first one the size is not known.
    assert (alone["no room"].error, alone["no room"].completed) == (None, [2, 6])
    stopped = alone["no room at the stop"]
    assert (stopped.error, stopped.last_step, stopped.completed) == (None, 4, [2, 4])


def test_a_failure_passes_through_and_leaves_nothing_behind(alone: dict[str, Result]) -> None:
    assert alone["broken"].error == "RuntimeError: the rank breaks"
    # The trainings after it ran in the same process.
    assert alone["weights"].error is None


def test_what_upstream_refuses_is_the_users_to_mend(alone: dict[str, Result]) -> None:
    error = alone["refused"].error or ""
    assert error.startswith("UserError: backend.config: megatron.training refuses these arguments")
    assert "--overlap-param-gather only supported with distributed optimizer" in error


def test_a_key_that_is_no_argument_is_refused_with_the_right_one(alone: dict[str, Result]) -> None:
    assert "backend.config.norm_epsilon: megatron.training has no such key here" in (alone["unknown"].error or "")
    assert "did you mean model.rms_norm_eps?" in (alone["unknown"].error or "")


def test_weights_of_its_checkpoint_start_a_run_of_either_loop(alone: dict[str, Result]) -> None:
    assert alone["weights"].losses[1] < alone["straight"].losses[1] - 0.3
    assert alone["weights"].losses == pytest.approx(alone["our weights"].losses, abs=1e-6)


def test_a_checkpoint_of_another_model_is_refused(alone: dict[str, Result]) -> None:
    error = alone["another model"].error or ""
    assert error.startswith("UserError: init_from: the checkpoint cannot be loaded")
    assert "Global shape mismatch" in error


def test_upstream_is_told_no_more_than_differs_from_its_defaults(alone: dict[str, Result]) -> None:
    argv = alone["straight"].argv
    assert "--num-layers=2" in argv
    assert "--disable-bias-linear" in argv
    assert not [word for word in argv if word.startswith(("--tensor-model-parallel-size", "--adam-beta1"))]
    assert Path(next(word for word in argv if word.startswith("--save="))[7:]).name == "checkpoints"
