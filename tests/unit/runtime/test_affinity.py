"""A rank keeps to its CPUs, with all its threads; what is not possible is said and no more."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from primus_hydra.host.cpu_list import format_cpu_list
from primus_hydra.runtime.affinity import bind_rank

NO_SUCH_CPU = 100_000


@pytest.fixture
def mask() -> Iterator[frozenset[int]]:
    """The CPUs of this process, which it has again after the test."""
    before = frozenset(os.sched_getaffinity(0))
    yield before
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), before)


def test_every_thread_of_the_process_is_bound_to_the_share_of_the_local_rank(mask: frozenset[int]):
    first, last = str(min(mask)), str(max(mask))
    ends = threading.Event()
    other = threading.Thread(target=ends.wait)
    other.start()
    try:
        notice = bind_rank((first, last), local_rank=1)
        masks = {int(cpu) for task in Path("/proc/self/task").iterdir() for cpu in os.sched_getaffinity(int(task.name))}
    finally:
        ends.set()
        other.join()
    assert masks == {int(last)}
    assert notice is not None
    assert (notice.level, notice.text) == (logging.INFO, f"bound to CPUs {last}")


def test_a_plan_that_binds_nothing_changes_nothing(mask: frozenset[int]):
    assert bind_rank((), local_rank=3) is None
    assert os.sched_getaffinity(0) == mask


def test_cpus_that_may_not_be_used_any_more_are_a_warning(mask: frozenset[int]):
    notice = bind_rank((str(NO_SUCH_CPU),), local_rank=0)
    assert notice is not None
    assert notice.level == logging.WARNING
    assert f"not bound to CPUs {NO_SUCH_CPU}" in notice.text
    assert os.sched_getaffinity(0) == mask


def test_a_share_of_which_some_is_left_is_taken_with_a_warning(mask: frozenset[int]):
    wanted = format_cpu_list({min(mask), NO_SUCH_CPU})
    notice = bind_rank((wanted,), local_rank=0)
    assert notice is not None
    assert (notice.level, os.sched_getaffinity(0)) == (logging.WARNING, {min(mask)})
    assert wanted in notice.text
