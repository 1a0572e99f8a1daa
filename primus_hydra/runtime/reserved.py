"""Names of environment variables that the run contract keeps for the launcher: nobody else sets them."""

from __future__ import annotations

import os

from primus_hydra.runtime.tether import PARENT_VARIABLE

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Names by which torchrun tells a rank who it is."""

NODE_VARIABLE = "PRIMUS_NODE"
"""Says which node of its job a process is on, from 0; not set where there is one node."""

EXTRA_VARIABLE = "PRIMUS_EXTRA"
"""What hooks kept for later, as one JSON object."""

HOOK_PREFIX = "PRIMUS_HOOK_"
"""How the names begin that tell a hook where it stands."""

_CONTRACT = (
    "PRIMUS_RUN_DIR",
    "PRIMUS_ATTEMPT",
    "PRIMUS_RESUME",
    "PRIMUS_STOP_GRACE_S",
    PARENT_VARIABLE,
    NODE_VARIABLE,
    EXTRA_VARIABLE,
)


def this_node() -> int:
    """Return the number of this node in its job."""
    return int(os.environ.get(NODE_VARIABLE) or 0)


def is_reserved(name: str) -> bool:
    """Whether only the launcher may set a variable of this name."""
    return name in RANK_VARIABLES or name in _CONTRACT or name.startswith(HOOK_PREFIX)
