"""Asks the server of ranks for trainings, and reads what the ranks saw."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.integration.ranked.driver import Result, Scenario

_DRIVER = "tests.integration.ranked.driver"
_ROOT = Path(__file__).resolve().parents[3]


class RankServer:
    """The server process of a backend; it and its ranks share a session of their own, which `close` ends."""

    def __init__(self, backend: str, log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _DRIVER, backend],
                cwd=_ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def train(self, world_size: int, scenarios: Sequence[Scenario], folder: Path) -> list[list[Result]]:
        """Run scenarios with fresh ranks; return the results of each rank, in the order of the scenarios."""
        folder.mkdir(parents=True, exist_ok=True)
        entries = [asdict(scenario) for scenario in scenarios]
        request = {"world_size": world_size, "scenarios": entries, "folder": str(folder)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        logs = "".join(file.read_text()[-4000:] for file in (self._log, *sorted(folder.glob("log-*.txt"))))
        assert answer, logs
        assert json.loads(answer) == [0] * world_size, logs
        return [_results(folder / f"rank-{rank}.json") for rank in range(world_size)]

    def close(self) -> None:
        """End the server and whatever is left of its ranks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def _results(file: Path) -> list[Result]:
    return [Result(**entry) for entry in json.loads(file.read_text())]
