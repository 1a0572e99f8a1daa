"""Running a driver's tool (nvidia-smi, amd-smi): its text, or nothing. A tool that fails or hangs never stops us."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

RunTool = Callable[[Sequence[str]], str | None]

# nvidia-smi without persistence mode initialises every GPU first, which takes seconds on a node with eight.
_TIMEOUT_S = 30.0


def run_tool(argv: Sequence[str]) -> str | None:
    """Return what the tool printed; None if it is not installed, fails, or takes longer than 30 s."""
    try:
        done = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
