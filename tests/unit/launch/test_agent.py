"""What the agent takes for the latest failure: only what the ranks of the latest start have left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from primus_hydra.config.layout import layout_of
from primus_hydra.launch.failures import decide as _decide
from primus_hydra.launch.restarts import RestartPolicy
from primus_hydra.launch.supervision import clear_pulses
from primus_hydra.runtime.outcome import failure
from primus_hydra.runtime.pulse import Pulse
from primus_hydra.runtime.spec import AttemptSpec
from tests.support import make_job


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[AttemptSpec]:
    layout, _ = layout_of(make_job({"parallel.dp_shard": 2}))
    assert layout is not None
    spec = AttemptSpec(
        run_dir=str(tmp_path), attempt=1, layout=layout, data=None, resume_from=None, backend_version="1"
    )
    yield spec
    clear_pulses(spec)


def leave(spec: AttemptSpec, restart: int, step: int, words: str) -> None:
    """Leave what two ranks of one start do that fail after a step."""
    for rank in range(2):
        pid = spec.attempt_paths.pid(rank)
        pid.parent.mkdir(parents=True, exist_ok=True)
        pid.write_text(f"{os.getpid()} {restart}")
        Pulse(spec.pulse(rank)).beat(step)
        failure(rank, RuntimeError(words), restart=restart).write(spec.attempt_paths)


def test_a_start_that_left_nothing_is_not_taken_for_the_one_before(spec: AttemptSpec) -> None:
    policy = RestartPolicy(1.0)
    leave(spec, restart=0, step=5, words="bad batch")
    assert _decide(spec, policy, policy.failures).restart

    # The next start died before a rank could say who it is: all files are still those of the first.
    assert _decide(spec, policy, policy.failures).wait_s == 1.0

    leave(spec, restart=2, step=5, words="bad batch")
    assert _decide(spec, policy, policy.failures).reason == "the same failure came back at step 6"
