"""The process that holds one device, seen from its parent: asked one thing at a time, and killed if it is silent.

A broken GPU may hang whoever touches it, in a way that no exception ends. So nothing here touches one: what a device
does is measured by a process of its own, which speaks lines of JSON, and which gets SIGKILL when its time is over.
Imports no torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from primus_hydra.runtime.tether import PARENT_VARIABLE

MODULE = "primus_hydra.measure.device"
DIES_WITHIN_S = 5.0
"""How long a killed process may take to be gone; one that the kernel cannot end (a stuck driver) is left behind."""
_LAST_WORDS = 400


class WorkerLost(Exception):
    """The process of a device is gone, or was killed because it did not answer."""


class Worker:
    """One process for the device `local_rank`; `log` gets what it and its libraries print."""

    def __init__(
        self, local_rank: int, *, python: Sequence[str], environment: Mapping[str, str], on_gpu: bool, log: Path
    ) -> None:
        self._log = log
        self._received = b""
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._ready: dict[str, Any] | None = None
        self.lost: str | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as words:
            self._process = subprocess.Popen(
                [*python, "-m", MODULE, str(local_rank), "gpu" if on_gpu else "cpu"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env={**environment, PARENT_VARIABLE: str(os.getpid())},
                start_new_session=True,
            )

    def send(self, request: Mapping[str, Any]) -> int:
        """Ask for something; return the number of the question."""
        self._number += 1
        line = json.dumps({**request, "number": self._number}).encode() + b"\n"
        if self.lost is not None:
            return self._number
        with contextlib.suppress(OSError):  # it is gone: `receive` says so
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()
        return self._number

    def receive(self, number: int, until: float) -> dict[str, Any]:
        """Return the answer to a question: {"value": ...} or {"error": text}.

        Raises WorkerLost if the process is gone, or at the moment `until` (monotonic): then it is killed.
        """
        while number not in self._answers and self.lost is None:
            self._answers |= {int(message["number"]): message for message in self._messages(until)}
        if number in self._answers:
            return self._answers.pop(number)
        raise WorkerLost(self.lost)

    def ready(self, until: float) -> dict[str, Any]:
        """Return what the process says of itself once its libraries are loaded; raises as `receive`."""
        if self._ready is not None and self.lost is None:
            return self._ready
        answer = self.receive(0, until)
        if "error" in answer:
            self._end(str(answer["error"]))
            raise WorkerLost(self.lost)
        value = answer["value"]
        assert isinstance(value, dict)
        self._ready = value
        return value

    def kill(self) -> None:
        """End the process at once, with all that it has started."""
        self.lost = self.lost or "it was ended"
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(DIES_WITHIN_S)
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def _messages(self, until: float) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        left = max(0.0, until - time.monotonic())
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            # What has been said already counts, also where another device has taken all the time.
            if not selector.select(min(left, 1.0)):
                if left == 0.0:
                    self._end("it did not answer in time and was killed")
                return []
        received = os.read(self._process.stdout.fileno(), 1 << 16)
        if not received:
            self._end(f"its process ended{self._how()}")
            return []
        *lines, self._received = (self._received + received).split(b"\n")
        return [json.loads(line) for line in lines]

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(DIES_WITHIN_S)
            how = f" by {signal.Signals(-code).name}" if code < 0 else f" with {code}"
            said = _last_words(self._log)
            return f"{how}: {said}" if said else how
        return ""

    def _end(self, reason: str) -> None:
        self.lost = reason
        self.kill()


def _last_words(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][-_LAST_WORDS:] if lines else ""
    return ""
