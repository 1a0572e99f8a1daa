"""Where the nodes of a job find each other: the first one listens and greets, the others look for its greeting.

The port follows from the job and its start. Somebody else may listen there, so there are a few to choose from, and only
the greeting tells whose it is. Who comes is greeted at once, by a thread of its own, also while the first node prepares
data or runs hooks; another job's or another start's nodes are sent away.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from dataclasses import replace

from primus_hydra.errors import HostError, Problem
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.line import Line

GREETING_S = 10.0
"""How long a stranger may take to say who it is, and a listener to greet."""
_AGAIN_S = 0.1
_TICK_S = 0.02


class Door:
    """The first node's end; `node` has the port that could be had."""

    def __init__(self, node: ClusterNode) -> None:
        """Listen; raises HostError if every port of this start is taken."""
        self._server, self.node = _listen(node)
        self._come: queue.SimpleQueue[tuple[int, Line]] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._greeter = threading.Thread(target=self._greet, name="door", daemon=True)
        self._greeter.start()

    def admitted(self) -> list[tuple[int, Line]]:
        """Return the nodes that have come since the last call, by number."""
        found: list[tuple[int, Line]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._come.get_nowait())
        return found

    def close(self) -> None:
        """Listen no more."""
        self._closed.set()
        self._greeter.join()
        self._server.close()
        for _, line in self.admitted():
            line.close()

    def _greet(self) -> None:
        strangers: list[tuple[Line, float]] = []
        while not self._closed.wait(_TICK_S):
            with contextlib.suppress(OSError):
                while True:
                    strangers.append((Line(self._server.accept()[0]), time.monotonic() + GREETING_S))
            strangers = [stranger for stranger in strangers if not self._is_known(*stranger)]
        for line, _ in strangers:
            line.close()

    def _is_known(self, line: Line, until: float) -> bool:
        """Whether it is clear who this is: one of ours, who is greeted, or somebody else, who has to go."""
        messages = line.receive()
        if messages and messages[0].get("run") == self.node.run_id:
            line.send({"welcome": self.node.run_id})
            self._come.put((int(messages[0]["node"]), line))
            return True
        if messages or not line.open or time.monotonic() > until:
            line.close()
            return True
        return False


def knock(node: ClusterNode, limit_s: float) -> tuple[Line, ClusterNode]:
    """Find the first node; return the line to it, and this node with the port; raises HostError if it does not answer.

    A port that belongs to somebody else gives no greeting, and the next one is tried.
    """
    end, problem = time.monotonic() + limit_s, "no answer"
    while time.monotonic() < end:
        for port in node.ports:
            found, said = _ask(node, port)
            if found is not None:
                return found, replace(node, port=port, other_ports=())
            problem = said or problem
        time.sleep(_AGAIN_S)
    what = f"the first node does not answer at {node.master}, port {' or '.join(map(str, node.ports))}: {problem}"
    raise HostError(Problem(what=what, where=node.host))


def _ask(node: ClusterNode, port: int) -> tuple[Line | None, str]:
    try:
        line = Line(socket.create_connection((node.master, port), timeout=5.0))
    except OSError as error:  # not there yet
        return None, str(error)
    line.send({"node": node.index, "run": node.run_id})
    greeting = line.wait(time.monotonic() + GREETING_S)
    if greeting is not None and greeting.get("welcome") == node.run_id:
        return line, ""
    line.close()
    return None, "somebody else listens there"


def _listen(node: ClusterNode) -> tuple[socket.socket, ClusterNode]:
    problem: OSError | None = None
    for port in node.ports:
        chosen = replace(node, port=port, other_ports=())
        try:
            server = socket.create_server(("", port), backlog=node.nodes + 8)
        except OSError as error:
            problem = error
            continue
        try:
            socket.create_server(("", chosen.agents_port)).close()
        except OSError as error:
            server.close()
            problem = error
        else:
            server.setblocking(False)
            return server, chosen
    what = f"the nodes cannot meet at port {' or '.join(map(str, node.ports))}: {problem}"
    raise HostError(Problem(what=what, where=node.host))
