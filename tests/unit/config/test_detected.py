"""`platform=auto` becomes what this machine is, with the GPUs that it has."""

from __future__ import annotations

import pytest

from primus_hydra.config import detected
from primus_hydra.config.compose import Request, compose
from primus_hydra.config.provenance import Source
from primus_hydra.host.cores import Cores
from primus_hydra.host.detect import Detection
from primus_hydra.host.gpu import Gpu

CORES = Cores(logical=2, physical=2, quota=None)


def machine(monkeypatch: pytest.MonkeyPatch, platform: str | None, name: str, count: int) -> None:
    """Pretend that this machine has `count` GPUs of a name."""
    gpus = tuple(Gpu(vendor="nvidia", names=(name,)) for _ in range(count))
    found = Detection(platform=platform, gpus=gpus, cores=CORES)
    monkeypatch.setattr(detected, "detect_platform", lambda candidates: found)


def test_a_known_gpu_chooses_its_platform_and_the_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "h200", "NVIDIA H200", 3)

    found = compose(Request(overrides=[]))

    assert (found.job.platform.name, found.job.platform.gpus_per_node) == ("h200", 3)
    source = found.provenance["platform.gpus_per_node"]
    assert isinstance(source, Source)
    assert source.kind == "detected"


def test_a_count_of_the_users_own_wins_over_the_detected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "h200", "NVIDIA H200", 3)

    assert compose(Request(overrides=["platform.gpus_per_node=2"])).job.platform.gpus_per_node == 2


def test_an_unknown_gpu_is_left_alone_with_a_note_that_says_how_to_take_it_in(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, None, "Tesla T4", 1)

    found = compose(Request(overrides=["platform=auto"]))

    assert found.job.platform.name == "cpu"
    assert "Tesla T4" in found.notes[0]
    assert "product_names" in found.notes[1]
