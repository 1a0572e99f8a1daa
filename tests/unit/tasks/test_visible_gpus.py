"""A job is checked, and its ranks are placed, with the GPUs that its ranks will see."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.host.detect import detect_platform
from primus_hydra.tasks import readiness
from tests.support import make_job
from tests.unit.host.machines import Tools, mi300x_node

NODE = {"platform.name": "mi300x", "platform.vendor": "amd", "platform.gpus_per_node": 8}
PRODUCT = {"platform.product_names": ["1002:74a1"], "training.global_batch_size": 16}


@pytest.mark.parametrize(
    ("overrides", "environment", "buses"),
    [
        ({}, {}, ["05", "26", "46", "65", "85", "a6", "c6", "e5"]),
        ({}, {"ROCR_VISIBLE_DEVICES": "1,0"}, ["26", "05"]),
        ({}, {"ROCR_VISIBLE_DEVICES": "6,7", "CUDA_VISIBLE_DEVICES": "6,7"}, ["c6", "e5"]),
        ({"env": {"ROCR_VISIBLE_DEVICES": "7,6"}}, {"ROCR_VISIBLE_DEVICES": "1,0"}, ["e5", "c6"]),
        ({"platform.env": {"HIP_VISIBLE_DEVICES": "3"}}, {"HIP_VISIBLE_DEVICES": "2"}, ["46"]),
    ],
)
def test_masks_of_the_shell_the_platform_and_the_job_count_as_they_will_in_a_rank(
    overrides: dict[str, Any],
    environment: dict[str, str],
    buses: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    machine = functools.partial(detect_platform, root=mi300x_node(tmp_path, [0] * 8), run=Tools())
    monkeypatch.setattr(readiness, "detect_platform", machine)
    found = readiness.examine(make_job({**NODE, **PRODUCT, **overrides}), environment)
    assert [gpu.pci for gpu in found.gpus] == [f"0000:{bus}:00.0" for bus in buses]
    assert any("8 GPUs were asked for" in problem.what for problem in found.hosts) == (len(buses) < 8)


def test_a_job_for_the_processor_gets_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine = functools.partial(detect_platform, root=mi300x_node(tmp_path, [0] * 8), run=Tools())
    monkeypatch.setattr(readiness, "detect_platform", machine)
    assert readiness.examine(make_job(), {}).gpus == ()
