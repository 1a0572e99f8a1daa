"""The environment that upstream's loop is tested in, and a server of ranks in it."""

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

import pytest

from tests.conftest import CANNOT_BE_HAD
from tests.integration.megatron_training.driver import Result, Scenario

ROOT = Path(__file__).resolve().parents[3]
VARIABLE = "PRIMUS_LANE_MEGATRON_TRAINING"
_DRIVER = "tests.integration.megatron_training.driver"


def lane_python() -> Path:
    """Return the environment's Python; skips the test without one, which fails the run in CI."""
    python = Path(os.environ.get(VARIABLE) or ROOT / ".lanes" / "megatron_training") / "bin" / "python"
    if python.exists():
        return python
    if sys.version_info[:2] != (3, 11):
        pytest.skip(f"{CANNOT_BE_HAD}the environment of upstream's loop is made for Python 3.11")
    pytest.skip(f"{python} is missing; make it with .ci/megatron_training_env {sys.prefix} .lanes/megatron_training")


def lane_environment() -> dict[str, str]:
    """Return the variables of processes there."""
    return os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}


class LaneServer:
    """The server process; it and its ranks share a session of their own, which `close` ends."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(lane_python()), "-m", _DRIVER],
                cwd=ROOT,
                env=lane_environment(),
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
        self.ask({"world_size": world_size, "scenarios": entries, "folder": str(folder)}, folder, [0] * world_size)
        ranks = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world_size)]
        return [[Result(**entry) for entry in rank] for rank in ranks]

    def ask(self, request: dict[str, object], folder: Path, wanted: object) -> None:
        """Send a request and wait for its answer, which must be the wanted one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        logs = "".join(file.read_text()[-4000:] for file in (self._log, *sorted(folder.glob("log-*.txt"))))
        assert answer, logs
        assert json.loads(answer) == wanted, logs

    def close(self) -> None:
        """End the server and whatever is left of its ranks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
