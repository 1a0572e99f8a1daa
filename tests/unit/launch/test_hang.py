"""Which silence is a hang, and who is named."""

from __future__ import annotations

import pytest

from primus_hydra.config.schema import TimeoutsConfig
from primus_hydra.launch.hang import Hang, Late, find_stuck, late_ranks, waits
from primus_hydra.runtime.pulse import SECTIONS, Beat, Section

TIMEOUTS = TimeoutsConfig(startup=100, step=10, checkpoint=50, validation=30)
COMPUTING = """Current thread 0x1 (most recent call first):
  File "/lib/loader.py", line 3 in read
  File "/lib/trainer.py", line 9 in train
  File "/x/primus_hydra/runtime/rank.py", line 40 in main
"""
WAITING = """Thread 0x2 (most recent call first):
  File "/lib/threading.py", line 1 in run

Current thread 0x1 (most recent call first):
  File "/torch/distributed/distributed_c10d.py", line 3913 in all_reduce
  File "/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/lib/trainer.py", line 9 in train
  File "/x/primus_hydra/runtime/rank.py", line 40 in main
"""


def beat(section: Section = "step", step: int = 3, at: float = 0.0) -> Beat:
    return Beat(pid=1, section=section, step=step, at_s=at, section_began_s=at, ended=dict.fromkeys(SECTIONS, 0.0))


@pytest.mark.parametrize(
    ("section", "silence", "hangs"),
    [
        ("step", 9, False),
        ("step", 11, True),
        ("startup", 99, False),
        ("startup", 101, True),
        ("checkpoint", 49, False),
        ("checkpoint", 51, True),
        ("validation", 31, True),
        ("ending", 99, False),
    ],
)
def test_each_section_has_its_own_patience(section: Section, silence: float, hangs: bool) -> None:
    assert bool(late_ranks({0: beat(section)}, TIMEOUTS, now_s=silence)) == hangs


def test_only_the_silent_ranks_are_late() -> None:
    late = late_ranks({0: beat(at=95.0), 1: beat(at=80.0, step=2)}, TIMEOUTS, now_s=100.0)
    assert late == [Late(rank=1, section="step", silent_s=20.0, step=2)]


def test_the_rank_outside_the_collective_is_stuck() -> None:
    steps = {0: 3, 1: 3, 2: 3}
    assert find_stuck(steps, {0: WAITING, 1: COMPUTING, 2: WAITING}) == (1,)


def test_a_rank_that_cannot_even_write_its_stack_is_the_stuck_one() -> None:
    steps = {0: 3, 1: 3, 2: 3}
    assert find_stuck(steps, {0: WAITING, 2: WAITING}) == (1,)
    assert find_stuck(steps, {}) == (0, 1, 2)


def test_where_all_wait_the_one_behind_is_stuck() -> None:
    steps = {0: 4, 1: 3}
    assert find_stuck(steps, {0: WAITING, 1: WAITING}) == (1,)
    assert find_stuck(steps, {}) == (1,)


def test_where_nothing_tells_them_apart_all_are_named() -> None:
    assert find_stuck({0: 3, 1: 3}, {0: WAITING, 1: WAITING}) == (0, 1)


@pytest.mark.parametrize(
    "frame",
    [
        'torch/distributed/_functional_collectives.py", line 142 in wait_tensor',
        'torch/distributed/distributed_c10d.py", line 3569 in _coalescing_manager',
    ],
)
def test_a_collective_without_a_telling_name_is_one(frame: str) -> None:
    assert waits(f"""Current thread 0x1 (most recent call first):
  File "/torch/_ops.py", line 1350 in __call__
  File "/{frame}
  File "/lib/trainer.py", line 9 in train
  File "/x/primus_hydra/runtime/rank.py", line 40 in main
""")


def test_a_stack_of_several_threads_is_read_for_the_rank_s_own() -> None:
    assert waits(WAITING)
    assert not waits(COMPUTING)


def test_a_hang_is_told_in_one_line() -> None:
    late = (
        Late(rank=1, section="checkpoint", silent_s=61.2, step=20),
        Late(rank=0, section="step", silent_s=5, step=20),
    )
    hang = Hang(late=late, stuck=(1,), stacks={})
    assert hang.describe() == "no progress for 61 s in checkpoint after step 20; stuck: rank 1"
