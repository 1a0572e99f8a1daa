"""Faults inside a rank, made from outside the product: a patch for every backend that acts where and when it is told.

`DRILL_ACTS` names a JSON file with a list of acts: {"name", "place", "how", "rank", "step", "attempt", "restart"}. The
places are those that all backends share: `start` (built, nothing trained), `data` (a sample of the step is asked for),
`save` (this rank's files are on the disk, the checkpoint does not count yet). Each act happens once in a process.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from primus_hydra.patching import PatchContext, register_patch
from primus_hydra.runtime.distributed import rank_numbers

ACTS_VARIABLE = "DRILL_ACTS"
LONGEST_S = 120.0
"""A drill that is gone must not leave a rank that waits for it."""
SPARE_BYTES = 256 * 1024**2
"""Memory that a rank may still take before it has none."""
PIECE_BYTES = 16 * 1024**2

_done: set[str] = set()
_leaked: list[Any] = []


@register_patch("drill.places", backend="*", phase="before_import", why="a drill makes faults inside a rank")
def watch_places(context: PatchContext) -> None:
    """Look for an act at every sample, and at every checkpoint before it counts.

    As early as this, since a backend takes what it needs of the ledger when its own configuration is built.
    """
    from primus_hydra.data.order import SampleOrder
    from primus_hydra.runtime.ledger import FileLedger

    batch = context.job.training.global_batch_size
    _before(SampleOrder, "index", lambda order, position: reach("data", position // batch + 1))
    _before(FileLedger, "completed", lambda ledger, step: reach("save", step))


@register_patch("drill.start", backend="*", phase="before_train", why="a drill makes faults inside a rank")
def watch_start(context: PatchContext) -> None:
    """Look for an act when everything is built."""
    reach("start", 0)


def reach(place: str, step: int) -> None:
    """Do what this rank is told to do here."""
    for act in _acts():
        here = (act["place"], act["step"], act["rank"]) == (place, step, rank_numbers(os.environ).rank)
        if here and _is_now(act) and act["name"] not in _done:
            _done.add(act["name"])
            _HOW[act["how"]](act)


@functools.cache
def _acts() -> list[dict[str, Any]]:
    acts: list[dict[str, Any]] = json.loads(_file().read_text(encoding="utf-8"))
    return acts


def _file() -> Path:
    return Path(os.environ[ACTS_VARIABLE])


def _is_now(act: dict[str, Any]) -> bool:
    restart = rank_numbers(os.environ).restart
    return int(os.environ["PRIMUS_ATTEMPT"]) == act["attempt"] and act["restart"] in (None, restart)


def _before(owner: type, name: str, look: Callable[..., None]) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def looked(*args: Any) -> Any:
        look(*args)
        return function(*args)

    setattr(owner, name, looked)


def _wait(act: dict[str, Any]) -> None:
    """Say that this place is reached, and stay here until the drill has done its part."""
    _file().with_name(f"{act['name']}.reached").touch()
    released, end = _file().with_name(f"{act['name']}.released"), time.monotonic() + LONGEST_S
    while not released.exists() and time.monotonic() < end:
        time.sleep(0.01)


def _hang(act: dict[str, Any]) -> None:
    time.sleep(LONGEST_S)


def _raise(act: dict[str, Any]) -> None:
    raise RuntimeError("the drill broke this rank")


def _exit(act: dict[str, Any]) -> None:
    os._exit(act["code"])


def _fill_memory(act: dict[str, Any]) -> None:
    """Take memory under a limit of the kernel until it refuses; nothing is given back."""
    import torch

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    while True:
        _leaked.append(torch.ones(PIECE_BYTES // 4))


_HOW: dict[str, Callable[[dict[str, Any]], None]] = {
    "wait": _wait,
    "hang": _hang,
    "raise": _raise,
    "exit": _exit,
    "memory": _fill_memory,
}
