"""The exchange between ranks that an outer launcher started: one word of rank 0 for all. Runs as a process of its own.

    python -m primus_hydra.launch.joined publish     rank 0: reads the word from standard input
    python -m primus_hydra.launch.joined follow      other ranks: wait for it, then become the rank

Under torchrun the store is the agent's; otherwise rank 0 serves it for as long as the exchange lasts, and leaves the
port to the ranks' own store. Refuses to wait for ever: a rank 0 that is gone or silent is an error of every rank.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_hydra.errors import ExitCode, HostError, PrimusError, Problem
from primus_hydra.launch.outer import OuterLaunch, outer_launch, python_argv
from primus_hydra.runtime.spec import AttemptSpec
from primus_hydra.runtime.tether import die_with_parent

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

WAIT_S = 1800.0
"""How long ranks wait for rank 0, which may have a corpus to prepare."""

VISIBLE_S = 60.0
"""How long a file that rank 0 wrote may take to show on another node (caches of network file systems)."""

GONE_WAIT_S = 30.0
"""How long the exchange stays after rank 0 died, to tell the others."""

_GONE = {"exit_code": int(ExitCode.BUG), "message": "rank 0 ended before it said how to go on"}


def main(argv: Sequence[str]) -> int:
    """Run one side of the exchange; returns the exit code."""
    die_with_parent()
    outer = outer_launch(os.environ)
    if outer is None or argv not in (["publish"], ["follow"]):
        print("usage: torchrun ... (this module is started by primus_hydra itself)", file=sys.stderr)
        return int(ExitCode.USER)
    try:
        store = _store(outer)
        return publish(store, outer, sys.stdin.read()) if argv == ["publish"] else follow(store, outer)
    except PrimusError as error:
        print(f"rank {outer.rank}: {error}", file=sys.stderr)
        return int(error.exit_code)


def publish(store: Store, outer: OuterLaunch, word: str) -> int:
    """Hand rank 0's word to all and wait until all have it; an empty word means that rank 0 died."""
    store.set(_key("word"), word or json.dumps(_GONE))
    waiting = outer.world_size - 1
    wait_s = WAIT_S if word else GONE_WAIT_S
    end = time.monotonic() + wait_s
    while store.add(_key("seen"), 0) < waiting:
        if time.monotonic() > end:
            raise HostError(f"not all of {waiting} other ranks asked for the job within {wait_s:g} s")
        time.sleep(0.02)
    return 0


def follow(store: Store, outer: OuterLaunch) -> int:
    """Wait for rank 0's word; become the rank, or return the exit code that rank 0 ends with."""
    word = receive(store)
    if "spec" not in word:
        return int(word["exit_code"])
    path = Path(word["spec"])
    _wait_until_visible(path)
    spec = AttemptSpec.read(path)
    os.environ.update(spec.environment)
    os.environ.update(outer.variables)
    argv = [*python_argv(), "-m", "primus_hydra.runtime.rank", str(path)]
    return os.execv(argv[0], argv)


def receive(store: Store) -> dict[str, Any]:
    """Return rank 0's word; raises HostError if it does not come in time."""
    try:
        store.wait([_key("word")], timedelta(seconds=WAIT_S))
    except Exception as error:  # torch raises DistStoreError or RuntimeError, by version
        raise HostError(f"rank 0 did not say how to go on: {_first_line(error)}") from error
    word: dict[str, Any] = json.loads(store.get(_key("word")))
    store.add(_key("seen"), 1)
    return word


def _store(outer: OuterLaunch) -> Store:
    from torch._C._distributed_c10d import TCPStore

    serves = outer.is_main and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        return TCPStore(
            outer.master_addr,
            outer.master_port,
            is_master=serves,
            wait_for_workers=False,
            timeout=timedelta(seconds=WAIT_S),
        )
    except Exception as error:  # torch raises DistNetworkError or RuntimeError, by version
        place = f"{outer.master_addr}:{outer.master_port}"
        raise HostError(Problem(what=f"no store at {place}: {_first_line(error)}", key="MASTER_ADDR")) from error


def _key(name: str) -> str:
    # An agent's store outlives its ranks: a restarted group must not read the word of the one before.
    return f"primus_hydra/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{name}"


def _wait_until_visible(path: Path) -> None:
    end = time.monotonic() + VISIBLE_S
    while not path.exists():
        if time.monotonic() > end:
            problem = Problem(key="run.dir", what=f"{path} of rank 0 is not visible here")
            raise HostError(problem)
        time.sleep(0.1)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # The port must be free again before another rank, which already knows, looks there for the job's own store.
    os._exit(code)
