"""The process of a device: answers, silence and death; and a session of nodes, one of which falls silent."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.measure import worker
from primus_hydra.measure.beat import Listener, beating
from primus_hydra.measure.bounded import bounded
from primus_hydra.measure.hands import Hands
from primus_hydra.measure.rates import bus_factor, bus_gb_s
from primus_hydra.measure.session import Session, attend
from primus_hydra.measure.worker import Worker, WorkerLost

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MODULE", "tests.unit.measure.echo_device")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **more}


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(3, python=[sys.executable], environment=environment(), on_gpu=False, log=tmp_path / "log")
    yield made
    made.kill()


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def test_a_device_says_what_it_is_and_answers_in_order(device: Worker) -> None:
    assert device.ready(soon()) == device.ready(soon()) == {"device": "cpu", "rank": "3"}
    first, second = (device.send({"do": "say", "say": word}) for word in ("one", "two"))

    assert [device.receive(number, soon())["value"] for number in (first, second)] == ["one", "two"]


def test_a_device_that_hangs_is_killed_when_its_time_is_over(device: Worker) -> None:
    device.ready(soon())
    number, began = device.send({"do": "hang"}), time.monotonic()

    with pytest.raises(WorkerLost, match="did not answer in time and was killed"):
        device.receive(number, soon(0.5))
    assert time.monotonic() - began < 5
    assert device._process.poll() == -9
    with pytest.raises(WorkerLost):  # and it stays lost
        device.receive(device.send({"do": "say"}), soon())


def test_the_death_of_a_device_is_told_with_its_last_words(device: Worker) -> None:
    device.ready(soon())

    with pytest.raises(WorkerLost, match="ended by SIGSEGV: the last words"):
        device.receive(device.send({"do": "die"}), soon())


def test_a_device_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    made = Worker(
        0, python=[sys.executable], environment=environment(ECHO_START="error"), on_gpu=True, log=tmp_path / "log"
    )

    with pytest.raises(WorkerLost, match="no such device"):
        made.ready(soon())
    assert made._process.poll() == -9


def hands(folder: Path, name: str, **acts: Any) -> Hands:
    return Hands(python=[sys.executable], environment=environment(), on_gpu=False, logs=folder, name=name, acts=acts)


def test_a_lost_device_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    made = hands(tmp_path, "a")
    start = {"act": "start", "count": 2, "limit_s": 20.0}
    try:
        first = made.act(start)["value"]
        answer = made.act({"act": "ask", "limit_s": 2.0, "questions": [{"do": "hang"}, {"do": "say", "say": 1}]})
        again = made.act(start)["value"]
        after = made.act({"act": "ask", "limit_s": 20.0, "questions": [{"do": "say", "say": 2}, None]})
    finally:
        made.close()

    assert [one["value"]["rank"] for one in first] == [one["value"]["rank"] for one in again] == ["0", "1"]
    assert "killed" in answer["value"][0]["error"]
    assert answer["value"][1] == {"value": 1}
    assert after["value"] == [{"value": 2}, {"value": None}]


def nodes(count: int) -> list[ClusterNode]:
    hosts = tuple(["127.0.0.1"] * count)
    job = str(time.time_ns())
    return [
        ClusterNode(job_id=job, restart=0, index=index, hosts=hosts, port=21_300 + os.getpid() % 4000 * 2)
        for index in range(count)
    ]


def test_a_node_that_is_silent_costs_one_limit_and_is_left_out(tmp_path: Path) -> None:
    def sleep(_: Any) -> str:
        time.sleep(30)
        return "late"

    first, *others = nodes(3)
    acts = {1: {"look": lambda _: "one"}, 2: {"look": sleep}}
    for node in others:
        made = hands(tmp_path, str(node.index), **acts[node.index])
        threading.Thread(
            target=attend, args=(node, made), kwargs={"join_limit_s": 10.0, "life_s": 20.0}, daemon=True
        ).start()
    said: list[str] = []
    with Session(first, hands(tmp_path, "0", look=lambda _: "zero"), say=said.append) as session:
        session.join(10.0)
        began = time.monotonic()
        answers = session.ask_all({"act": "look"}, 0.5)
        took = time.monotonic() - began
        again = session.ask_all({"act": "look"}, 0.5)
        skews = session.clock_skews(5.0)

    assert {index: answer["value"] for index, answer in answers.items()} == {0: "zero", 1: "one"}
    assert took < 8
    assert session.lost == {2: "it did not answer within 0.5 s"}
    assert session.nodes == (0, 1)
    assert set(again) == {0, 1}
    assert abs(skews[1]) < 0.5
    assert len(said) == 1


def test_a_node_that_never_comes_is_lost_after_the_limit(tmp_path: Path) -> None:
    with Session(nodes(2)[0], hands(tmp_path, "0"), say=lambda _: None) as session:
        session.join(0.3)

        assert session.lost == {1: "it did not come to the first node within 0.3 s"}


def test_what_an_act_raises_is_its_answer(tmp_path: Path) -> None:
    def broken(_: Any) -> None:
        raise ValueError("no such thing")

    assert hands(tmp_path, "0", look=broken).act({"act": "look"}) == {"error": "ValueError: no such thing"}


def test_what_never_comes_back_is_given_up() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        bounded(lambda: time.sleep(30), 0.1)

    assert time.monotonic() - began < 5
    assert bounded(lambda: 3, 5.0) == 3
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0, 5.0)


def test_a_first_node_that_stops_to_count_is_heard_of_no_more(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    with beating(tmp_path):
        end = time.monotonic() + 10
        while not (tmp_path / "beat.json").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert listener.silent_s(100.0) == 0.0
    # The count is taken away at the end, which is one more change, and then nothing comes.
    assert [listener.silent_s(now) for now in (110.0, 130.0)] == [0.0, 20.0]


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_to_all", 4, 0.75), ("p2p", 2, 1.0), ("ring", 8, 1.0)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(op: str, ranks: int, factor: float) -> None:
    assert bus_factor(op, ranks) == factor
    assert bus_gb_s(op, 1000 / 1.048576, 1.0, ranks) == pytest.approx(factor)


def test_one_rank_crosses_no_link() -> None:
    with pytest.raises(ValueError, match="crosses no link"):
        bus_factor("all_reduce", 1)
