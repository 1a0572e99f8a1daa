"""Starts the toy launch in a process of its own, and looks at what it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

TOY = Path(__file__).parent / "toy"
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120  # many times what an idle machine needs


class ToyLaunch:
    """One launch of the toy backend; `command` may put torchrun in front."""

    def __init__(self, tmp_path: Path, overrides: dict[str, Any], command: list[str] | None = None) -> None:
        self.run_dir = tmp_path / "run"
        self.tmp_path = tmp_path
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
        environment["PYTHONPATH"] = os.pathsep.join(toy_path(tmp_path / "site"))
        environment["OMP_NUM_THREADS"] = "1"
        self.process = subprocess.Popen(
            [*(command or [sys.executable]), str(TOY / "toy_launch.py"), str(self.run_dir), json.dumps(overrides)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> dict[str, Any]:
        """Wait for the end; return what the launcher said, and its own exit code as `code`."""
        output, errors = self.process.communicate(timeout=TIMEOUT_S)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        said = json.loads(lines[-1]) if lines else {}
        return {**said, "code": self.process.returncode, "stderr": errors}

    def wait_for_step(self, step: int, rank: int = 0) -> None:
        """Wait until a rank has finished a step."""
        wait_until(lambda: f"step {step}\n" in self.notes(rank), f"step {step}; {self.logs()}")

    def notes(self, rank: int = 0) -> str:
        """Return what the toy trainer of a rank did."""
        path = self.run_dir / f"notes-{rank}.txt"
        return path.read_text() if path.exists() else ""

    def rank_pid(self, rank: int) -> int:
        """Return the process id of a rank."""
        return int((self.run_dir / "attempts" / "1" / "pids" / f"rank-{rank}").read_text().split()[0])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the launcher alone."""
        self.process.send_signal(number)

    def logs(self) -> str:
        """Return all logs, for the message of a failed test."""
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.run_dir.glob("logs/*")))

    def living(self) -> list[int]:
        """Return the processes that have to do with this launch and still run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                about = any(str(self.tmp_path) in word for word in process.cmdline())
                if about and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found

    def close(self) -> None:
        """End what a failed test left."""
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ValueError):  # the pipes are closed already
            self.process.communicate(timeout=TIMEOUT_S)


@contextlib.contextmanager
def toy_launch(tmp_path: Path, overrides: dict[str, Any], command: list[str] | None = None) -> Iterator[ToyLaunch]:
    launch = ToyLaunch(tmp_path, overrides, command)
    try:
        yield launch
    finally:
        launch.close()


def wait_until(true: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)


def toy_path(site: Path) -> list[str]:
    """Install the toy in `site` as a package that declares itself, the way in for backends; return a PYTHONPATH."""
    _install_toy(site / "primus_toy-1.0.dist-info")
    return [str(TOY), str(site), str(ROOT)]


def _install_toy(info: Path) -> None:
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: primus-toy\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("primus_toy\nprimus_probe\n")
    (info / "entry_points.txt").write_text("[primus_hydra.targets]\ntoy = primus_toy\nprobe = primus_probe\n")
