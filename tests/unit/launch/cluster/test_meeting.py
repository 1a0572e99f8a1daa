"""The nodes of a job meet, learn what to run, notice who is lost, and end with one code."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from primus_hydra.errors import HostError, UserError
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.meeting import Guest, Host, current_host
from primus_hydra.launch.verdict import LaunchResult

FINE = LaunchResult(exit_code=0, message="finished")
KILLED = LaunchResult(exit_code=137, message="rank 1 was killed", failed_rank=1)
LIMIT_S = 20.0


@pytest.fixture
def nodes() -> list[ClusterNode]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    hosts = ("127.0.0.1", "b", "c")
    return [ClusterNode(job_id="7", restart=1, index=index, hosts=hosts, port=port) for index in range(3)]


def host_of(nodes: list[ClusterNode]) -> Host:
    return Host(nodes[0], grace_s=1.0, join_limit_s=LIMIT_S)


def guests(nodes: list[ClusterNode], do: Callable[[Guest], object]) -> tuple[ThreadPoolExecutor, list[Future[object]]]:
    pool = ThreadPoolExecutor(2)
    return pool, [pool.submit(lambda node=node: do(Guest(node, join_limit_s=LIMIT_S))) for node in nodes[1:]]


def test_all_nodes_run_what_the_first_says_and_end_with_its_code(nodes: list[ClusterNode], tmp_path: Path) -> None:
    def work(guest: Guest) -> object:
        word = guest.word(LIMIT_S)
        return word, guest.leave(FINE, LIMIT_S)

    pool, ends = guests(nodes, work)
    with pool, host_of(nodes) as host, host.shared():
        assert current_host() is host
        host.spec(tmp_path / "spec.json")
        assert host.news() is None
        assert host.gather(FINE) == FINE
        host.bye(75)
        assert [end.result(LIMIT_S) for end in ends] == [({"spec": str(tmp_path / "spec.json")}, 75)] * 2
    assert current_host() is None


def test_a_failed_node_ends_the_others_and_is_told(nodes: list[ClusterNode], tmp_path: Path) -> None:
    def work(guest: Guest) -> object:
        guest.word(LIMIT_S)
        if guest.node.index == 1:
            return guest.leave(KILLED, LIMIT_S)
        reason = _wait(guest.news)
        followed = LaunchResult(exit_code=1, message="ended with the job", followed=True)
        return reason, guest.leave(followed, LIMIT_S)

    pool, ends = guests(nodes, work)
    with pool, host_of(nodes) as host:
        host.spec(tmp_path / "spec.json")
        assert _wait(host.news) == "b: rank 1 was killed"
        result = host.gather(LaunchResult(exit_code=1, message="ended with the job", followed=True))
        host.bye(result.exit_code)
        assert (result.exit_code, result.message, result.failed_rank) == (137, "rank 1 was killed (on b)", 1)
        assert ends[0].result(LIMIT_S) == 137
        assert ends[1].result(LIMIT_S) == ("b: rank 1 was killed", 137)


def test_a_node_that_vanishes_is_lost(nodes: list[ClusterNode], tmp_path: Path) -> None:
    def work(guest: Guest) -> object:
        guest.word(LIMIT_S)
        if guest.node.index == 1:
            guest.close()  # as a process that is killed
            return None
        return _wait(guest.news), guest.leave(KILLED, LIMIT_S)

    pool, ends = guests(nodes, work)
    with pool, host_of(nodes) as host:
        host.spec(tmp_path / "spec.json")
        assert "b (node 1 of the job) was lost" in (_wait(host.news) or "")
        result = host.gather(FINE)
        host.bye(result.exit_code)
        assert result.exit_code == 137
        assert "was lost" in str(ends[1].result(LIMIT_S))


def test_others_notice_that_the_first_node_is_lost(nodes: list[ClusterNode], tmp_path: Path) -> None:
    def work(guest: Guest) -> object:
        guest.word(LIMIT_S)
        return _wait(guest.news), guest.leave(KILLED, LIMIT_S)

    pool, ends = guests(nodes, work)
    with pool:
        with host_of(nodes) as host:
            host.spec(tmp_path / "spec.json")
        assert [end.result(LIMIT_S) for end in ends] == [("127.0.0.1 (the first node) was lost", 137)] * 2


def test_what_the_first_node_refuses_ends_all_with_its_code(nodes: list[ClusterNode]) -> None:
    pool, words = guests(nodes, lambda guest: guest.word(LIMIT_S))

    def refuse() -> None:
        with host_of(nodes):
            raise UserError("no such data")

    with pool:
        with pytest.raises(UserError):
            refuse()
        for word in words:
            assert word.result(LIMIT_S) == {"bye": 2, "message": "no such data"}


def test_a_node_that_never_comes_is_named(nodes: list[ClusterNode], tmp_path: Path) -> None:
    with Host(nodes[0], grace_s=1.0, join_limit_s=0.3) as host, pytest.raises(HostError, match="b, c did not come"):
        host.spec(tmp_path)


def test_a_first_node_that_does_not_answer_is_an_error(nodes: list[ClusterNode]) -> None:
    with pytest.raises(HostError, match="the first node does not answer"):
        Guest(nodes[1], join_limit_s=0.3)


def test_a_task_of_another_start_is_not_admitted(nodes: list[ClusterNode], tmp_path: Path) -> None:
    old = ClusterNode(job_id="7", restart=0, index=1, hosts=nodes[1].hosts, port=nodes[1].port)
    with Host(nodes[0], grace_s=1.0, join_limit_s=1.0) as host:
        late = threading.Timer(0.1, lambda: Guest(old, join_limit_s=LIMIT_S))
        late.start()
        with pytest.raises(HostError, match="b, c did not come"):
            host.spec(tmp_path)
        late.join()


def _wait(news: Callable[[], str | None]) -> str | None:
    end = time.monotonic() + LIMIT_S
    while (said := news()) is None and time.monotonic() < end:
        time.sleep(0.02)
    return said
