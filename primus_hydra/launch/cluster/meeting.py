"""The launchers of a job's nodes talk to that of the first: what to run, that a node is lost, how it ended.

Lines of JSON over one TCP connection for each node, which lasts as long as the attempt, so that a node that dies is
noticed by all others at once, and one that is cut off within half a minute. Refuses to wait for ever for a node that
never comes, and does not answer another job's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any

from primus_hydra.errors import ExitCode, HostError, PrimusError, Problem
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.door import Door, knock
from primus_hydra.launch.cluster.ends import NodeEnd, lost_node, merge, node_end, read_end
from primus_hydra.launch.cluster.fence import Fence
from primus_hydra.launch.cluster.line import Line
from primus_hydra.launch.verdict import LaunchResult

JOIN_LIMIT_S = 300.0
"""How long nodes may differ in their start: a shared file system at the start of a large job is slow."""
LAST_WORDS_S = 20.0
"""How long the ranks of other nodes may take to end once one node's are over, beyond the grace of a stop."""
_TICK_S = 0.05


class Host:
    """The first node's end: use it as a context manager around its whole work, whose end it tells by `bye`.

    Leaving by an error tells the others the error's exit code. `fence` keeps this start of the job out of a
    run that a later one has, or waits for.
    """

    def __init__(
        self,
        node: ClusterNode,
        *,
        grace_s: float,
        join_limit_s: float = JOIN_LIMIT_S,
        fence: Fence | None = None,
    ) -> None:
        self._node = node
        self._grace_s = grace_s
        self._join_limit_s = join_limit_s
        self._fence = fence
        self._door: Door | None = None
        self._lines: dict[int, Line] = {}
        self._ends: dict[int, NodeEnd] = {}
        self._awaited = False
        self._hung: int | None = None
        self.told = False
        """Whether the nodes know what to run."""

    def __enter__(self) -> Host:
        if self._node.nodes > 1:
            self._door = Door(self._node)
            self._node = self._door.node
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

    @property
    def was_left_alone(self) -> bool:
        """Whether a node was lost, or the run is another start's: it may be this node that was cut off."""
        return any(end.lost for end in self._ends.values()) or (self._fence is not None and self._fence.closed)

    def spec(self, path: Path) -> None:
        """Tell every node what to run; raises HostError if one does not come."""
        self._join(self._join_limit_s)
        self._tell({"spec": str(path.absolute())})
        self.told = True

    def news(self) -> str | None:
        """Return why this node's ranks should end: another node is lost or has failed, or the run is not ours."""
        self._look()
        bad = next((end for end in self._ends.values() if end.failed or end.lost), None)
        if bad is None:
            return None if self._fence is None else self._fence()
        return f"{self._node.hosts[bad.node]}: {bad.message}"

    def hung(self) -> int | None:
        """Return in which start of the ranks a node has found the newest hang."""
        self._look()
        return self._hung

    def tell_hang(self, restart: int) -> None:
        """Tell all nodes of a hang."""
        self._tell({"hang": restart})

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
        if self._fence is not None:
            self._fence.leave_if_taken()
        return merge(own, [self._ends[index] for index in range(self._node.nodes)], self._node.hosts)

    def bye(self, code: int, message: str = "") -> None:
        """Let all nodes end with this exit code, also those that still wait for what to run."""
        # A task that fails while others have not come yet would have srun kill them, and tell that as the job's end.
        with contextlib.suppress(HostError):
            self._join(self._join_limit_s)
        self._tell({"bye": code, "message": message})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.bye(int(error.exit_code) if isinstance(error, PrimusError) else int(ExitCode.BUG), str(error))
        for line in self._lines.values():
            line.close()
        if self._door is not None:
            self._door.close()

    def _join(self, limit_s: float) -> None:
        """Wait for all nodes, once."""
        end = time.monotonic() + (0.0 if self._awaited else limit_s)
        self._awaited = True
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
        self._lines.update(self._door.admitted() if self._door is not None else ())
        for index, line in self._lines.items():
            for message in line.receive():
                if "end" in message:
                    self._ends[index] = read_end(message["end"])
                if "hang" in message:
                    self._hung = int(message["hang"])
                    self._tell(message)
            if not line.open:
                self._ends.setdefault(index, lost_node(index, self._node.hosts[index], now=time.time()))

    def _tell(self, message: Mapping[str, Any]) -> None:
        for line in self._lines.values():
            line.send(message)


class Guest:
    """Another node's end of the meeting."""

    def __init__(self, node: ClusterNode, *, join_limit_s: float = JOIN_LIMIT_S) -> None:
        """Connect to the first node; raises HostError if it does not answer."""
        self._line, self._node = knock(node, join_limit_s)
        self._bye: int | None = None
        self._end: str | None = None
        self._hung: int | None = None

    @property
    def node(self) -> ClusterNode:
        """This node, with the port at which the first one was found."""
        return self._node

    @property
    def was_left_alone(self) -> bool:
        """Whether the first node was lost: it may be this one that was cut off."""
        return self._bye is None and not self._line.open

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
        self._look()
        if self._end is not None:
            return self._end
        return None if self._line.open else f"{self._node.master} (the first node) was lost"

    def hung(self) -> int | None:
        """Return in which start of the ranks a node has found the newest hang."""
        self._look()
        return self._hung

    def tell_hang(self, restart: int) -> None:
        """Tell all nodes of a hang, by the first one."""
        self._line.send({"hang": restart})

    def _look(self) -> None:
        for message in self._line.receive():
            if "end" in message:
                self._end = str(message["end"])
            if "bye" in message:
                self._bye = int(message["bye"])
            if "hang" in message:
                self._hung = int(message["hang"])

    def leave(self, own: LaunchResult, limit_s: float) -> int:
        """Say how this node ended; return the exit code of the job, or this node's own if the first node is gone."""
        self._line.send({"end": node_end(self._node.index, own, now=time.time()).to_json()})
        end = time.monotonic() + limit_s
        while self._bye is None and self._line.open and time.monotonic() < end:
            self._look()
            time.sleep(_TICK_S)
        return int(own.exit_code) if self._bye is None else self._bye


_host: ContextVar[Host | None] = ContextVar("primus_hydra_host", default=None)


def current_host() -> Host | None:
    """Return the meeting that this process holds; None where the job has no other nodes."""
    return _host.get()
