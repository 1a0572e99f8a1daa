"""The rendezvous of the agents of several nodes: all of them, in the allocation's order, every time. Imports torch.

torch's own c10d rendezvous orders nodes by their names and waits for latecomers; here the nodes of a job are known. The
first node's agent serves a store at a port that both the job and its start decide, and gives every round a new store
for the ranks: nothing of the ranks before is in it. An agent that has to restart its ranks opens the next round, the
others see it and come too. An agent that is done for closes the rendezvous, so that nobody waits for it.
"""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousHandler, RendezvousInfo
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

JOIN_LIMIT = timedelta(hours=4)
"""How long a round waits for the last node, whose hooks may take long; a node that is lost is noticed elsewhere."""
LOOK_S = 0.5
"""How often an agent asks whether another one has opened the next round."""


class ManyNodes(RendezvousHandler):
    """Meets the agents of all nodes at the first one's store."""

    def __init__(self, run_id: str, meeting: tuple[str, int], *, node: int, nodes: int) -> None:
        self._run_id = run_id
        self._host, self._port = meeting
        self._node = node
        self._nodes = nodes
        self._meeting: TCPStore | None = None
        self._store: TCPStore | None = None
        self._round = 0
        self._looked = 0.0

    @property
    def use_agent_store(self) -> bool:
        """Whether ranks use the agent's store, rather than one that rank 0 serves."""
        return True

    @property
    def restarts(self) -> int:
        """How often the ranks of all nodes were started again."""
        return self._round - 1

    def get_backend(self) -> str:
        """Return the name of this kind of rendezvous."""
        return "many-nodes"

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until all nodes are in the next round; raises RendezvousClosedError if one will never come."""
        meeting = self._open()
        self._round += 1
        if meeting.add(self._key("joined"), 1) == self._nodes:
            meeting.set(self._key("all"), "1")
        self._wait(meeting, self._key("all"))
        store = self._store = self._store_for_ranks(meeting)
        return RendezvousInfo(
            store=store,
            rank=self._node,
            world_size=self._nodes,
            bootstrap_store_info=RendezvousStoreInfo(self._host, store.port),
        )

    def num_nodes_waiting(self) -> int:
        """Return how many nodes are in the next round already; asked often, and looked up now and then."""
        now = time.monotonic()
        if self._meeting is None or now - self._looked < LOOK_S:
            return 0
        self._looked = now
        return self._meeting.add(f"round-{self._round + 1}/joined", 0)

    def is_closed(self) -> bool:
        """Whether an agent has left for good."""
        return self._meeting is not None and self._meeting.check(["closed"])

    def set_closed(self) -> None:
        """Let nobody wait for this agent."""
        if self._meeting is not None:
            with contextlib.suppress(RuntimeError):  # the first node's agent is gone, and its store with it
                self._meeting.set("closed", "1")

    def get_run_id(self) -> str:
        """Return the name of the attempt."""
        return self._run_id

    def shutdown(self) -> bool:
        """Leave for good."""
        self.set_closed()
        self._store = None
        return True

    def _open(self) -> TCPStore:
        if self._meeting is None:
            self._meeting = TCPStore(
                self._host,
                self._port,
                is_master=self._node == 0,
                wait_for_workers=False,
                timeout=JOIN_LIMIT,
            )
        return self._meeting

    def _store_for_ranks(self, meeting: TCPStore) -> TCPStore:
        """Return this round's store: the first node serves it, at a port that its kernel picks."""
        if self._node == 0:
            store = TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
            meeting.set(self._key("port"), str(store.port))
            return store
        self._wait(meeting, self._key("port"))
        return TCPStore(self._host, int(meeting.get(self._key("port"))), is_master=False, timeout=JOIN_LIMIT)

    def _wait(self, meeting: TCPStore, key: str) -> None:
        end = time.monotonic() + JOIN_LIMIT.total_seconds()
        while not meeting.check([key]):
            if self.is_closed():
                raise RendezvousClosedError("another node's agent has left")
            if time.monotonic() > end:
                raise RendezvousClosedError(f"not all of {self._nodes} nodes came")
            time.sleep(0.02)

    def _key(self, name: str) -> str:
        return f"round-{self._round}/{name}"
