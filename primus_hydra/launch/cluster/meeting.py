"""The launchers of a job's nodes talk to that of the first: what to run, that a node is lost, how it ended.

Lines of JSON over one TCP connection for each node, which lasts as long as the attempt, so that a node that dies is
noticed by all others at once, and one that is cut off within half a minute. Refuses to wait for ever for a node that
never comes, and does not answer another job's.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any

from primus_hydra.errors import ExitCode, HostError, PrimusError, Problem
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.ends import NodeEnd, lost_node, merge, node_end, read_end
from primus_hydra.launch.verdict import LaunchResult

JOIN_LIMIT_S = 300.0
"""How long nodes may differ in their start: a shared file system at the start of a large job is slow."""
LAST_WORDS_S = 20.0
"""How long the ranks of other nodes may take to end once one node's are over, beyond the grace of a stop."""
_LATE_LIMIT_S = 10.0
"""How long the first node waits for others only to tell them that there is nothing to do."""
_AGAIN_S = 0.1
_TICK_S = 0.05
_SILENCE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4))
"""Seconds before the kernel asks a silent peer, between two questions, and how many may go unanswered."""


class Line:
    """One connection: whole messages out, whole messages in, nothing waited for unless asked."""

    def __init__(self, connection: socket.socket) -> None:
        _keep_alive(connection)
        connection.setblocking(False)
        self._connection = connection
        self._received = b""
        self._unread: list[dict[str, Any]] = []
        self.open = True

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; a peer that is gone is noticed by `receive`."""
        with contextlib.suppress(OSError):
            self._connection.settimeout(LAST_WORDS_S)
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        with contextlib.suppress(OSError):
            self._connection.setblocking(False)

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have come; `open` is false afterwards if no more can."""
        while self.open:
            try:
                received = self._connection.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                received = b""
            self.open = bool(received)
            self._received += received
        *lines, self._received = self._received.split(b"\n")
        messages, self._unread = [*self._unread, *(json.loads(line) for line in lines)], []
        return messages

    def wait(self, until: float) -> dict[str, Any] | None:
        """Return the next message; None if the peer is gone or the moment (monotonic) is over."""
        while time.monotonic() < until:
            self._unread = self.receive()
            if self._unread:
                return self._unread.pop(0)
            if not self.open:
                return None
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection, selectors.EVENT_READ)
                selector.select(min(1.0, max(0.0, until - time.monotonic())))
        return None

    def close(self) -> None:
        """Close the connection."""
        self.open = False
        self._connection.close()


class Host:
    """The first node's end: use it as a context manager around its whole work, whose end it tells by `bye`.

    Leaving by an error tells the others the error's exit code.
    """

    def __init__(self, node: ClusterNode, *, grace_s: float, join_limit_s: float = JOIN_LIMIT_S) -> None:
        self._node = node
        self._grace_s = grace_s
        self._join_limit_s = join_limit_s
        self._server: socket.socket | None = None
        self._strangers: list[Line] = []
        self._lines: dict[int, Line] = {}
        self._ends: dict[int, NodeEnd] = {}
        self._told = False
        self.stopped_by: int | None = None
        """The signal that ended the attempt, once it is known."""

    def __enter__(self) -> Host:
        try:
            self._server = socket.create_server(("", self._node.port), backlog=self._node.nodes + 8)
        except OSError as error:
            what = f"the nodes cannot meet at port {self._node.port}: {error}"
            raise HostError(Problem(what=what, where=self._node.host)) from error
        self._server.setblocking(False)
        return self

    @contextlib.contextmanager
    def shared(self) -> Iterator[Host]:
        """Offer this meeting to `current_host` while the block runs."""
        token = _host.set(self)
        try:
            yield self
        finally:
            _host.reset(token)

    @property
    def node(self) -> ClusterNode:
        """The first node."""
        return self._node

    def spec(self, path: Path) -> None:
        """Tell every node what to run; raises HostError if one does not come."""
        self._join(self._join_limit_s)
        self._tell({"spec": str(path.absolute())})
        self._told = True

    def news(self) -> str | None:
        """Return why this node's ranks should end: another node is lost, or has failed."""
        self._look()
        bad = next((end for end in self._ends.values() if end.failed or end.lost), None)
        return None if bad is None else f"{self._node.hosts[bad.node]}: {bad.message}"

    def gather(self, own: LaunchResult) -> LaunchResult:
        """Wait for the ends of all nodes and return that of the attempt."""
        self._ends[0] = node_end(0, own, now=time.time())
        told, end = False, time.monotonic() + LAST_WORDS_S + self._grace_s
        while len(self._ends) < self._node.nodes and time.monotonic() < end:
            reason = self.news()
            if reason is not None and not told:
                told, end = True, time.monotonic() + LAST_WORDS_S
                self._tell({"end": reason})
            time.sleep(_TICK_S)
        for index in range(self._node.nodes):
            self._ends.setdefault(index, lost_node(index, self._node.hosts[index], now=time.time()))
        result = merge(own, [self._ends[index] for index in range(self._node.nodes)], self._node.hosts)
        self.stopped_by = result.signal
        return result

    def bye(self, code: int, message: str = "") -> None:
        """Let all nodes end with this exit code, also those that still wait for what to run."""
        if not self._told:
            with contextlib.suppress(HostError):
                self._join(_LATE_LIMIT_S)
        self._tell({"bye": code, "message": message})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.bye(int(error.exit_code) if isinstance(error, PrimusError) else int(ExitCode.BUG), str(error))
        for line in (*self._lines.values(), *self._strangers):
            line.close()
        if self._server is not None:
            self._server.close()

    def _join(self, limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while len(self._lines) < self._node.nodes - 1:
            if time.monotonic() > end:
                missing = [host for index, host in enumerate(self._node.hosts) if index and index not in self._lines]
                what = f"{', '.join(missing)} did not come to {self._node.host}:{self._node.port}"
                hint = "is the run directory there, and may the nodes talk to each other at that port?"
                raise HostError(Problem(what=what, hint=hint))
            time.sleep(_TICK_S)
            self._look()

    def _look(self) -> None:
        """Take in who comes, what they say, and who is gone."""
        self._admit()
        for index, line in self._lines.items():
            for message in line.receive():
                if "end" in message:
                    self._ends[index] = read_end(message["end"])
            if not line.open:
                self._ends.setdefault(index, lost_node(index, self._node.hosts[index], now=time.time()))

    def _admit(self) -> None:
        while self._server is not None:
            try:
                self._strangers.append(Line(self._server.accept()[0]))
            except (BlockingIOError, ConnectionError):
                break
        for line in list(self._strangers):
            messages = line.receive()
            if messages and messages[0].get("run") == self._node.run_id:
                self._lines[int(messages[0]["node"])] = line
                self._strangers.remove(line)
            elif messages or not line.open:
                line.close()
                self._strangers.remove(line)

    def _tell(self, message: Mapping[str, Any]) -> None:
        for line in self._lines.values():
            line.send(message)


class Guest:
    """Another node's end of the meeting."""

    def __init__(self, node: ClusterNode, *, join_limit_s: float = JOIN_LIMIT_S) -> None:
        """Connect to the first node; raises HostError if it does not answer."""
        self._node = node
        self._line = _connect(node, time.monotonic() + join_limit_s)
        self._line.send({"node": node.index, "run": node.run_id})
        self._bye: int | None = None

    @property
    def node(self) -> ClusterNode:
        """This node."""
        return self._node

    def close(self) -> None:
        """Leave without a word."""
        self._line.close()

    def word(self, limit_s: float) -> dict[str, Any]:
        """Return what the first node says first: {"spec": path}, or {"bye": exit code, "message": why}."""
        said = self._line.wait(time.monotonic() + limit_s)
        if said is None:
            raise HostError(Problem(what=f"{self._node.master} ended before it said what to run"))
        return said

    def news(self) -> str | None:
        """Return why this node's ranks should end."""
        for message in self._line.receive():
            if "end" in message:
                return str(message["end"])
            if "bye" in message:
                self._bye = int(message["bye"])
        return None if self._line.open else f"{self._node.master} (the first node) was lost"

    def leave(self, own: LaunchResult, limit_s: float) -> int:
        """Say how this node ended; return the exit code of the job, or this node's own if the first node is gone."""
        self._line.send({"end": node_end(self._node.index, own, now=time.time()).to_json()})
        end = time.monotonic() + limit_s
        while self._bye is None and self._line.open and time.monotonic() < end:
            self.news()
            time.sleep(_TICK_S)
        self._line.close()
        return int(own.exit_code) if self._bye is None else self._bye


_host: ContextVar[Host | None] = ContextVar("primus_hydra_host", default=None)


def current_host() -> Host | None:
    """Return the meeting that this process holds; None where the job has no other nodes."""
    return _host.get()


def _connect(node: ClusterNode, until: float) -> Line:
    error: OSError | None = None
    while time.monotonic() < until:
        try:
            return Line(socket.create_connection((node.master, node.port), timeout=5.0))
        except OSError as problem:  # not there yet
            error = problem
            time.sleep(_AGAIN_S)
    what = f"the first node does not answer at {node.master}:{node.port}: {error}"
    raise HostError(Problem(what=what, where=node.host))


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _SILENCE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
