"""One fault of each kind, with the backends in turn; `python -m tests.drills` runs every fault with both."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.conftest import CANNOT_BE_HAD
from tests.drills.disks import can_mount
from tests.drills.fault import Kind
from tests.drills.lane import Lane
from tests.drills.table import FAULTS

REPRESENTATIVES = {
    "parent-killed-in-save": "torchtitan",
    "sigterm-in-save": "megatron",
    "hang-in-collective": "torchtitan",
    "rank-raises": "megatron",
    "out-of-memory": "torchtitan",
    "disk-full-in-save": "megatron",
    "two-newest-broken": "torchtitan",
    "two-starts": "megatron",
    "clock-set-back": "torchtitan",
    "pipe-closed": "megatron",
}


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Lane:
    return Lane(tmp_path_factory.mktemp("drills"))


@pytest.mark.ranks
@pytest.mark.parametrize(("name", "backend"), REPRESENTATIVES.items())
def test_a_run_survives(name: str, backend: str, lane: Lane) -> None:
    fault = FAULTS[name]
    if fault.needs_mounts and not can_mount():
        pytest.skip(f"{CANNOT_BE_HAD}a process that may mount")
    result = lane.drill(fault, backend)

    assert result.held, "\n".join(result.complaints)


def test_every_kind_of_fault_has_a_representative() -> None:
    assert {FAULTS[name].kind for name in REPRESENTATIVES} == set(get_args(Kind))
