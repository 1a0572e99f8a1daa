"""Signals of a scheduler that come before any rank was started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.early import HEARD, StoppedEarly, early_stops
from primus_hydra.launch.cluster.meeting import Host


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in HEARD}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_while_the_first_node_prepares_ends_that_and_only_the_first_does() -> None:
    early_stops()
    with pytest.raises(StoppedEarly) as stopped:
        os.kill(os.getpid(), signal.SIGUSR2)
    os.kill(os.getpid(), signal.SIGTERM)  # what is left to do is done

    assert stopped.value.signal == signal.SIGUSR2


def test_another_node_waits_for_what_the_first_one_decides() -> None:
    early_stops(obey=False)
    os.kill(os.getpid(), signal.SIGTERM)


def test_when_the_nodes_know_what_to_run_the_end_of_the_attempt_is_written_undisturbed() -> None:
    node = ClusterNode(job_id="7", restart=0, index=0, hosts=("a",), port=1)
    told = early_stops()
    with Host(node, grace_s=1.0) as host, host.shared():
        host.told = True
        os.kill(os.getpid(), signal.SIGTERM)
    told.ignore()

    assert [signal.getsignal(number) for number in HEARD] == [signal.SIG_IGN] * 2
