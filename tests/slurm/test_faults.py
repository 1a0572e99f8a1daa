"""One fault of each kind in Slurm, with real ranks on real nodes; `python -m tests.drills slurm` runs all of them.

A node that crashes, a rank that is killed and the warning before the time limit have tests of their own in `test_node`.
"""

from __future__ import annotations

from typing import get_args

import pytest

from tests.drills.fault import ClusterKind
from tests.drills.lane import Lane
from tests.drills.table import FAULTS
from tests.slurm.cluster import Cluster

REPRESENTATIVES = (
    "slurm-preempted-grace",
    "slurm-requeued-stuck",
    "slurm-first-link-cut",
    "slurm-controller-away-at-requeue",
    "slurm-waits",
    "slurm-hang",
)


@pytest.fixture(scope="module")
def lane(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Lane:
    return Lane(tmp_path_factory.mktemp("drills"), lambda: cluster)


@pytest.mark.ranks
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_job_survives(name: str, lane: Lane) -> None:
    result = lane.drill(FAULTS[name], "megatron")

    assert result.held, "\n".join(result.complaints)


def test_every_kind_of_fault_in_slurm_has_a_representative() -> None:
    assert {FAULTS[name].kind for name in REPRESENTATIVES} >= set(get_args(ClusterKind))
