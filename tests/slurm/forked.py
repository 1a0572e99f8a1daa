"""The real command on the cluster's login node, forked from this process: each test types several, and a Python of its
own would spend most of its time on imports."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from primus_hydra.app import run_command
from primus_hydra.tasks import submission

_CLONE_NEWNET, _CLONE_NEWUTS = 0x40000000, 0x04000000
NODE_MODULE = "tests.slurm.stand_in_node"


class Forked:
    """A command in another network and host name, with files of its own for what it prints."""

    def __init__(self, argv: Sequence[str], *, space: Path, cwd: Path, env: Mapping[str, str], output: Path) -> None:
        self._output = output
        self.returncode: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, space=space, cwd=cwd, env=env, output=output)

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text(errors="replace")

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the command, which must not have been waited for."""
        os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end and return its exit code; it is killed if it takes too long."""
        end = time.monotonic() + timeout_s
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"{timeout_s:g} s were not enough\n{self.output}")
            else:
                time.sleep(0.02)
        return self.returncode


def _become(argv: Sequence[str], *, space: Path, cwd: Path, env: Mapping[str, str], output: Path) -> None:
    code = 1
    try:
        _enter(space)
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd)
        submission.NODE_MODULE = NODE_MODULE
        code = run_command(argv)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _enter(space: Path) -> None:
    """Move this process to the login node's network, under its name."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(space, os.O_RDONLY)
    if libc.setns(descriptor, _CLONE_NEWNET) or libc.unshare(_CLONE_NEWUTS):
        raise OSError(ctypes.get_errno(), "the login node cannot be entered")
    os.close(descriptor)
    socket.sethostname("ctl")
