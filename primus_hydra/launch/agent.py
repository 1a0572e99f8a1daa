"""torch's elastic agent on this node, in a process of its own: `python -m primus_hydra.launch.agent SPEC [HOST PORT]`.

With a host and a port it meets the agents of the job's other nodes there. The agent starts the ranks, restarts all of
them when one dies, and gives every start a fresh rendezvous. It handles no signals: the launcher decides what a signal
means and tells the ranks itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from primus_hydra.launch.fork_server import ForkServer
from primus_hydra.runtime.signals import outlive_stops
from primus_hydra.runtime.tether import PARENT_VARIABLE, die_with_parent


def main(argv: Sequence[str]) -> int:
    """Run the ranks of one attempt; returns 0 if every rank exited with 0, else 1."""
    die_with_parent()
    outlive_stops()
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    spec_path = Path(argv[0])
    server = ForkServer.start(spec_path) if _wants_server(spec_path) else None
    # Only now: the server is what takes longest, and each forked rank imports this module again.
    from primus_hydra.launch.group import run_ranks

    return run_ranks(spec_path, server, (argv[1], int(argv[2])) if len(argv) > 1 else None)


def _wants_server(spec_path: Path) -> bool:
    return bool(json.loads(spec_path.read_text(encoding="utf-8"))["start"] == "fork_server")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
