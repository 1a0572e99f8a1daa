"""Each patch of upstream's loop mends what it says: the symptom without it, and its absence with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CANNOT_BE_HAD

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


@pytest.fixture(scope="module")
def seen(described: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((described / "seen.json").read_text())
    return found


def test_python_3_11_lacks_what_upstream_imports(seen: dict[str, Any]) -> None:
    before, after = seen["override"]
    if sys.version_info >= (3, 12):
        pytest.skip(f"{CANNOT_BE_HAD}this Python has it")
    assert before.startswith("ImportError: cannot import name 'override' from 'typing'")
    assert after == "None"


def test_upstream_starts_without_cuda(seen: dict[str, Any]) -> None:
    before, after = seen["start"]
    assert before == "AssertionError: Megatron requires CUDA."
    # It goes on to its arguments, which there are none of here.
    assert after == "AssertionError: args is not initialized."


def test_upstream_makes_its_groups_for_one_device_a_rank(seen: dict[str, Any]) -> None:
    assert seen["devices"] == ["0", "1"]


def test_upstream_warms_up_no_kernels_of_a_gpu(seen: dict[str, Any]) -> None:
    before, after = seen["kernels"]
    assert before == "AssertionError: args is not initialized."
    assert after == "None"


def test_upstream_runs_no_make_where_its_helpers_are_built(seen: dict[str, Any]) -> None:
    before, after = seen["helpers"]
    assert before == "SystemExit: 1"
    assert after == "None"
