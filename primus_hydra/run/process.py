"""Which process a number means. A process id is used again; its start, in clock ticks of one boot, never is.

Times of day cannot tell this: somebody may have set the clock. Where there is no /proc, nothing is known of a process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import psutil

_START_FIELD = 19
"""Position of `starttime` behind the command's closing bracket in /proc/PID/stat, see proc(5)."""


def start_mark(pid: int) -> str | None:
    """Return what tells the living process `pid` from all that had its number before; None if it does not live.

    A zombie lives no more: its files, and with them its locks, are closed.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) <= _START_FIELD or fields[0] in (b"Z", b"X"):
        return None
    return f"{boot}:{fields[_START_FIELD].decode('ascii')}"


def signal_process(pid: int, mark: str | None, number: signal.Signals) -> bool:
    """Send a signal to process `pid` if it still has `mark`; False if it does not, raises PermissionError.

    The process is held by a descriptor before the mark is compared, so that no other one can take its number between.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = _open(pid)
            if descriptor is not None:
                stack.callback(os.close, descriptor)
            if mark is None or start_mark(pid) != mark:
                return False
            if descriptor is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
    return True


def _open(pid: int) -> int | None:
    """Return a descriptor of a process; None where the kernel has no such thing."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def session_of(leader: int) -> list[int]:
    """Return the living processes of the session that `leader` began."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found
