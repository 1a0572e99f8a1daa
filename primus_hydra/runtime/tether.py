"""Processes that must not outlive their parent: the kernel kills them when it dies (Linux).

`PR_SET_PDEATHSIG` is forgotten by a fork and says nothing of a parent that died before the call, so every process of
the tree asks for it itself and then looks whether its parent is still the one it was given.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "PRIMUS_PARENT_PID"
"""Environment variable that names the process whose death ends this one."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Ask for SIGKILL when the parent named by the environment dies; exit now if it is dead already."""
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        os._exit(128 + signal.SIGKILL)
