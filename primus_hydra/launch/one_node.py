"""The rendezvous of one node's agent: alone, so it waits for nobody. Imports torch.

torch's own c10d rendezvous sleeps up to 0.3 s at the first start and a second at every restart, to let other nodes
join. Here each round gives the ranks a new store, in the agent and at a port that the kernel picked: nothing of the
ranks before is in it, and no other program can take its port between the choice and the use.
"""

from __future__ import annotations

from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

LOOPBACK = "127.0.0.1"


class OneNode(RendezvousHandler):
    """Admits this agent, and no other."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._store: TCPStore | None = None

    @property
    def use_agent_store(self) -> bool:
        """Whether ranks use the agent's store, rather than one that rank 0 serves."""
        return True

    def get_backend(self) -> str:
        """Return the name of this kind of rendezvous."""
        return "one-node"

    def next_rendezvous(self) -> RendezvousInfo:
        """Begin a round with a store of its own; raises torch's DistNetworkError if no port can be had."""
        store = self._store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
        return RendezvousInfo(
            store=store,
            rank=0,
            world_size=1,
            bootstrap_store_info=RendezvousStoreInfo(LOOPBACK, store.port),
        )

    def is_closed(self) -> bool:
        """Whether the rendezvous is over: never, for an agent that is alone."""
        return False

    def set_closed(self) -> None:
        """Do nothing: nobody else is here to be told."""

    def num_nodes_waiting(self) -> int:
        """Return how many nodes want to join: none."""
        return 0

    def get_run_id(self) -> str:
        """Return the name of the attempt."""
        return self._run_id

    def shutdown(self) -> bool:
        """Close the store."""
        self._store = None
        return True
