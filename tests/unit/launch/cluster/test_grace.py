"""How long ranks have to save in Slurm."""

from __future__ import annotations

import pytest

from primus_hydra.launch.cluster.grace import in_slurm, stop_grace_s
from tests.support import make_job


@pytest.mark.parametrize(
    ("grace_s", "delay_s", "seconds"),
    [(120, 90, 80), (120, 300, 120), (30, 90, 30), (120, 10, 5)],
)
def test_the_grace_ends_before_the_time_limit_with_something_left_for_the_requeue(
    grace_s: float, delay_s: int, seconds: float
) -> None:
    job = make_job({"launch.stop_grace_s": grace_s, "launch.slurm.signal_delay_s": delay_s})

    assert stop_grace_s(job) == seconds
    assert in_slurm(job).launch.stop_grace_s == seconds
