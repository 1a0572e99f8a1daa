"""The nodes of a job meet, learn what to run, notice who is lost, and end with one code."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from primus_hydra.errors import HostError, UserError
from primus_hydra.launch.cluster import fence
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.fence import Fence
from primus_hydra.launch.cluster.meeting import Guest, Host, current_host
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.run.atomic import read_json, write_json
from primus_hydra.run.lock import RunLock
from primus_hydra.run.paths import RunPaths

FINE = LaunchResult(exit_code=0, message="finished")
KILLED = LaunchResult(exit_code=137, message="rank 1 was killed", failed_rank=1)
LIMIT_S = 20.0
T = TypeVar("T")


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
        with pytest.raises(HostError, match="somebody else listens there"):
            Guest(old, join_limit_s=0.2)
        with pytest.raises(HostError, match="b, c did not come"):
            host.spec(tmp_path)


def test_nodes_meet_at_another_port_where_somebody_listens_at_the_first(nodes: list[ClusterNode]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        other = free.getsockname()[1]
    both = [replace(node, other_ports=(other,)) for node in nodes]
    pool, words = guests(both, lambda guest: (guest.word(LIMIT_S), guest.node.agents_port))
    with pool, _stranger(nodes[0].port), host_of(both) as host:
        assert host.node.agents_port == other + 1
        host.bye(3, "not today")
        assert [word.result(LIMIT_S) for word in words] == [({"bye": 3, "message": "not today"}, other + 1)] * 2


def test_a_port_is_not_taken_whose_neighbour_for_the_agents_is_in_use(nodes: list[ClusterNode]) -> None:
    with socket.create_server(("", nodes[0].agents_port)), pytest.raises(HostError, match="cannot meet at port"):
        host_of(nodes).__enter__()


def test_every_node_hears_of_a_hang_whichever_found_it(nodes: list[ClusterNode], tmp_path: Path) -> None:
    def work(guest: Guest) -> object:
        guest.word(LIMIT_S)
        if guest.node.index == 1:
            guest.tell_hang(2)
        return _wait(guest.hung)

    pool, heard = guests(nodes, work)
    with pool, host_of(nodes) as host:
        host.spec(tmp_path / "spec.json")
        assert _wait(host.hung) == 2
        assert [found.result(LIMIT_S) for found in heard] == [2, 2]


def test_an_end_by_error_waits_for_late_nodes_so_that_all_tell_the_same(nodes: list[ClusterNode]) -> None:
    def refuse() -> None:
        with host_of(nodes):
            raise HostError("no such device")

    with ThreadPoolExecutor(3) as pool:
        refusal = pool.submit(refuse)
        time.sleep(0.5)
        words = [pool.submit(lambda node=node: Guest(node, join_limit_s=LIMIT_S).word(LIMIT_S)) for node in nodes[1:]]
        assert [word.result(LIMIT_S)["bye"] for word in words] == [3, 3]
        assert isinstance(refusal.exception(LIMIT_S), HostError)


class Taken(Exception):
    """What leaving is in a test."""


def test_a_later_start_of_the_job_ends_this_one_and_one_that_has_the_run_silences_it(
    nodes: list[ClusterNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(why: str) -> None:
        raise Taken(why)

    monkeypatch.setattr(fence, "LOOK_S", 0.0)
    paths, alone = RunPaths(tmp_path), replace(nodes[0], hosts=("a",))
    with RunLock(paths.lock, job=alone.run_id):
        keeper = Fence(paths, alone.run_id, leave)
        with Host(alone, grace_s=1.0, fence=keeper) as host:
            assert host.news() is None
            with pytest.raises(UserError), RunLock(paths.lock, wait_s=0.1, job="8.2"):
                pass
            assert host.news() is None, "another job may not send this one away"
            with pytest.raises(UserError), RunLock(paths.lock, wait_s=0.1, job="7.2"):
                pass
            assert "Slurm has started the job again: process" in (host.news() or "")
            host.gather(FINE)  # it still has the run
            write_json(paths.lock, {**(read_json(paths.lock) or {}), "job": "7.2"})  # as NFS gives a lock away
            with pytest.raises(Taken, match="the run was taken over"):
                host.gather(FINE)


@contextlib.contextmanager
def _stranger(port: int) -> Iterator[None]:
    """Somebody who accepts everything and says nothing of ours."""
    with socket.create_server(("", port)) as server:
        server.settimeout(0.05)
        done = threading.Event()

        def accept() -> None:
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    server.accept()[0].close()

        thread = threading.Thread(target=accept)
        thread.start()
        yield
        done.set()
        thread.join()


def _wait(news: Callable[[], T | None]) -> T | None:
    end = time.monotonic() + LIMIT_S
    while (said := news()) is None and time.monotonic() < end:
        time.sleep(0.02)
    return said
