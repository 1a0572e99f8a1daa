"""The nodes of a job doing what the first one asks, each in bounded time: one that is silent is left out from then on.

The first node listens where the launchers of a training job meet. It never waits for a node longer than the limit of a
question, so a node that hangs, is cut off or never came costs one limit and no more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from primus_hydra.errors import HostError
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.door import Door, knock
from primus_hydra.launch.cluster.line import Line
from primus_hydra.measure.hands import Hands

_TICK_S = 0.02
_SLACK_S = 5.0
"""What an answer may be late: a node notes its own limits first, and its word has to travel."""

Answer = dict[str, Any]


class Session:
    """The first node's view of all nodes, by their numbers; use it as a context manager."""

    def __init__(self, node: ClusterNode, hands: Hands, *, say: Callable[[str], None]) -> None:
        self.hosts = node.hosts
        self.lost: dict[int, str] = {}
        """Why a node is asked no more."""
        self._node = node
        self._hands = hands
        self._say = say
        self._lines: dict[int, Line] = {}
        self._asked = 0
        self._door: Door | None = None

    def __enter__(self) -> Session:
        if self._node.nodes > 1:
            self._door = Door(self._node)
            self._node = self._door.node
        return self

    def __exit__(self, *error: object) -> None:
        for line in self._lines.values():
            line.send({"bye": True})
            line.close()
        if self._door is not None:
            self._door.close()
        self._hands.close()

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that still answer; the first one is always among them."""
        return tuple(index for index in range(len(self.hosts)) if index not in self.lost)

    def join(self, limit_s: float) -> None:
        """Wait until all nodes are here, and count as lost those that do not come."""
        end = time.monotonic() + limit_s
        while len(self._lines) < len(self.hosts) - 1 and time.monotonic() < end:
            self._admit()
            time.sleep(_TICK_S)
        for index in range(1, len(self.hosts)):
            if index not in self._lines:
                self._lose(index, f"it did not come to the first node within {limit_s:g} s")

    def ask(self, questions: Mapping[int, Mapping[str, Any]], limit_s: float) -> dict[int, Answer]:
        """Let nodes act; return their answers, {"value": ...} or {"error": text}, of those that answered."""
        self._asked += 1
        end = time.monotonic() + limit_s + _SLACK_S
        there = {index: question for index, question in questions.items() if index not in self.lost}
        for index, question in there.items():
            if index in self._lines:
                self._lines[index].send({**question, "limit_s": limit_s, "asked": self._asked})
        answers: dict[int, Answer] = {}
        if 0 in there:
            answers[0] = self._hands.act({**there[0], "limit_s": limit_s})
        waited = set(there) - {0}
        while waited - set(answers) - set(self.lost):
            self._take(waited, answers)
            if time.monotonic() > end:
                for index in waited - set(answers) - set(self.lost):
                    self._lose(index, f"it did not answer within {limit_s:g} s")
            time.sleep(_TICK_S)
        return answers

    def ask_all(self, question: Mapping[str, Any], limit_s: float) -> dict[int, Answer]:
        """Ask every node that still answers the same."""
        return self.ask(dict.fromkeys(self.nodes, question), limit_s)

    def clock_skews(self, limit_s: float, times: int = 3) -> dict[int, float]:
        """Return by how many seconds the clock of each other node is ahead of the first one's.

        Of a few questions that with the shortest way counts, and its answer is taken for the middle of the way.
        """
        found: dict[int, tuple[float, float]] = {}
        for index in [index for index in self.nodes if index != 0]:
            for _ in range(times):
                sent = time.time()
                answer = self.ask({index: {"act": "time"}}, limit_s).get(index)
                got = time.time()
                if answer is not None and "value" in answer:
                    measured = (got - sent, float(answer["value"]) - (sent + got) / 2)
                    found[index] = min(found.get(index, measured), measured)
        return {index: skew for index, (_, skew) in found.items()}

    def _take(self, waited: Iterable[int], answers: dict[int, Answer]) -> None:
        for index in waited:
            line = self._lines[index]
            for message in line.receive():
                if message.get("asked") == self._asked:
                    answers[index] = {name: value for name, value in message.items() if name != "asked"}
            if not line.open and index not in answers and index not in self.lost:
                self._lose(index, "it was lost: it crashed, or its process was killed")

    def _admit(self) -> None:
        if self._door is not None:
            for index, line in self._door.admitted():
                if index in self.lost:
                    line.close()
                else:
                    self._lines[index] = line

    def _lose(self, index: int, why: str) -> None:
        self.lost[index] = why
        self._say(f"{self.hosts[index]}: {why}")
        if index in self._lines:
            self._lines[index].close()


def attend(node: ClusterNode, hands: Hands, *, join_limit_s: float, life_s: float) -> int:
    """Be another node: do what the first one asks until it says goodbye; return an exit code.

    Ends when the first node is gone, and after `life_s` in any case. Raises HostError if it does not answer at all.
    """
    line, _ = knock(node, join_limit_s)
    end = time.monotonic() + life_s
    try:
        while (message := line.wait(end)) is not None:
            if "bye" in message:
                return 0
            line.send({**hands.act(message), "asked": message.get("asked")})
        return 0
    finally:
        with contextlib.suppress(HostError, OSError):
            line.close()
        hands.close()
