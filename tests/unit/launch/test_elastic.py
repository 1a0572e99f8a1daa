"""What our agent changes in torch's: a rendezvous that waits for nobody, and an end that takes no time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from primus_hydra.config.layout import layout_of
from primus_hydra.launch.deaths import Deaths
from primus_hydra.launch.elastic import PolicyAgent
from primus_hydra.launch.one_node import OneNode
from primus_hydra.launch.supervision import clear_pulses
from primus_hydra.runtime.outcome import Outcome
from primus_hydra.runtime.spec import AttemptSpec
from tests.support import make_job


class Forked(BaseProcess):
    """A process that only notes how it was ended."""

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def __repr__(self) -> str:
        return "a rank"

    def terminate(self) -> None:
        self.told.append("SIGTERM")

    def kill(self) -> None:
        self.told.append("SIGKILL")


class Context:
    """What torch keeps of the processes of one start."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._pc = SimpleNamespace(processes=[Forked(self.told)])

    def close(self, death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
        self.told.append(death_sig.name if death_sig else "SIGTERM")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Any]:
    layout, _ = layout_of(make_job({"parallel.dp_shard": 2}))
    assert layout is not None
    spec = AttemptSpec(
        run_dir=str(tmp_path), attempt=1, layout=layout, data=None, resume_from=None, backend_version="1"
    )
    agent: Any = object.__new__(PolicyAgent)
    agent._attempt, agent._stages, agent._deaths = spec, spec.stages("agent"), Deaths({})
    yield agent
    clear_pulses(spec)


def ended(agent: Any) -> list[str]:
    """Let torch end the other ranks; return how it did."""
    context: Any = Context()
    agent._end_promptly(context)
    context._pc.processes[0].terminate()
    context.close()
    return list(context.told)


def test_after_a_death_without_a_word_the_others_are_killed(agent: Any) -> None:
    agent._deaths.ended.add(1)

    assert ended(agent) == ["SIGKILL", "SIGKILL"]


def test_after_a_failure_that_was_told_the_others_may_still_speak(agent: Any) -> None:
    Outcome(rank=1, status="failed", message="bad batch").write(agent._attempt.attempt_paths)
    agent._deaths.ended.add(1)

    assert ended(agent) == ["SIGTERM", "SIGTERM"]


def test_what_an_earlier_start_said_is_not_taken_for_a_word(agent: Any) -> None:
    Outcome(rank=1, status="failed", message="bad batch", restart=0).write(agent._attempt.attempt_paths)
    agent._stages.restart = 1
    agent._deaths.ended.add(1)

    assert ended(agent) == ["SIGKILL", "SIGKILL"]


def test_every_round_of_one_node_has_a_store_of_its_own() -> None:
    rendezvous = OneNode("attempt-1")
    first = rendezvous.next_rendezvous()
    first.store.set("address", "of a dead rank")
    second = rendezvous.next_rendezvous()

    assert (second.rank, second.world_size) == (0, 1)
    assert not second.store.check(["address"])
    assert second.bootstrap_store_info.master_port != first.bootstrap_store_info.master_port
    assert rendezvous.use_agent_store
    assert rendezvous.num_nodes_waiting() == 0
    assert rendezvous.shutdown()
