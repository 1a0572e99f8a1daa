"""Between an agent and its fork server: which attempt it is for, and what it says of its preparation.

Imports next to nothing: an agent wants to start its server before anything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from primus_hydra.run.atomic import read_json
from primus_hydra.run.paths import AttemptPaths
from primus_hydra.runtime.reserved import this_node

SPEC_VARIABLE = "PRIMUS_PRELOAD_SPEC"
"""Environment variable that names the spec of the attempt to the fork server."""


def report_path(spec_path: Path) -> Path:
    """Return where the server says how its preparation went."""
    return AttemptPaths(spec_path.parent).preload(this_node())


def unfit_reason(spec_path: Path, *, alive: Callable[[], bool], timeout_s: float) -> str | None:
    """Wait for the server's report; return why ranks may not be forked from it, None if they may."""
    end = time.monotonic() + timeout_s
    while (said := read_json(report_path(spec_path))) is None:
        if not alive():
            return "it ended while it prepared itself"
        if time.monotonic() > end:
            return f"it was not ready after {timeout_s:g} s"
        time.sleep(0.01)
    unfit = said.get("unfit")
    return None if unfit is None else str(unfit)
