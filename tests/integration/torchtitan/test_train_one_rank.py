from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from tests.integration.ranked.driver import Result
from tests.integration.ranked.lab import STEPS, Lab

pytestmark = pytest.mark.ranks


def test_the_loss_falls(alone: dict[str, Result]) -> None:
    losses = alone["straight"].losses
    assert sorted(losses) == list(range(1, STEPS + 1))
    # Random guessing costs ln(512) = 6.24 nats; frequent tokens alone are learnt within the 20 steps.
    assert losses[1] > 6.2
    assert losses[STEPS] < losses[1] - 0.5


def test_a_resumed_run_repeats_the_losses_bit_by_bit(alone: dict[str, Result]) -> None:
    straight, resumed = alone["straight"].losses, alone["resumed"].losses
    assert resumed == {step: straight[step] for step in range(11, STEPS + 1)}


def test_a_run_that_resumes_nothing_ignores_the_checkpoints_in_its_folder(alone: dict[str, Result]) -> None:
    # The schedule is another one for two steps, so only the first loss is the same.
    assert alone["ignored"].losses[1] == alone["straight"].losses[1]
    assert alone["ignored"].completed == []


def test_every_step_is_reported_with_its_numbers(alone: dict[str, Result]) -> None:
    line = alone["straight"].metrics[4]
    assert line["step"] == 5
    assert line["lr"] > 0
    assert line["grad_norm"] > 0
    assert line["tokens_per_s"] > 0
    assert line["memory_gib"] > 0
    assert line["extra"]["tokens_seen"] == 5 * 4 * 256


def test_the_validation_loss_is_measured_on_other_text(alone: dict[str, Result]) -> None:
    measured = {line["step"]: line["validation_loss"] for line in alone["straight"].metrics if line["validation_loss"]}
    assert sorted(measured) == [10, 20]
    assert measured[20] < measured[10] < 6.6
    assert measured[20] != alone["straight"].losses[20]


def test_checkpoints_are_reported_when_they_are_on_the_disk(alone: dict[str, Result], lab: Lab) -> None:
    assert alone["straight"].completed == [10, 20]
    assert alone["resumed"].completed == [20]
    assert lab.checkpoints("straight") == ["step-10", "step-20"]


def test_a_stop_saves_the_step_and_the_run_goes_on_from_it(alone: dict[str, Result]) -> None:
    stopped, resumed = alone["stopped"], alone["stopped and resumed"]
    assert (stopped.last_step, stopped.completed) == (5, [5])
    assert resumed.last_step == 8
    assert stopped.losses | resumed.losses == alone["not stopped"].losses


def test_a_background_save_is_complete_before_older_ones_go(alone: dict[str, Result], lab: Lab) -> None:
    assert alone["async"].last_step == 6
    assert alone["async"].completed == [2, 4, 6]
    # The newest one, and the one that was asked to stay.
    assert lab.checkpoints("async") == ["step-4", "step-6"]


def test_a_seed_checkpoint_holds_the_first_weights(alone: dict[str, Result], lab: Lab) -> None:
    assert alone["seed"].completed == [0]
    assert alone["seed"].losses == {}
    assert lab.checkpoints("seed") == ["step-0"]


def test_the_export_is_readable_as_hugging_face_weights(alone: dict[str, Result], lab: Lab) -> None:
    assert alone["export"].error is None
    (file,) = (lab.root / "export" / "export").glob("*.safetensors")
    shapes = {name: entry["shape"] for name, entry in _header(file).items() if name != "__metadata__"}
    assert shapes["model.embed_tokens.weight"] == [512, 64]
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == [32, 64]


def _header(file: Path) -> dict[str, dict[str, object]]:
    """Read the names and shapes of a safetensors file: eight bytes of length, then JSON."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header: dict[str, dict[str, object]] = json.loads(data[8 : 8 + length])
    return header
