"""Runs the real command on a very small model, as a user would, and reads what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.run.metrics import last_per_step, number, read_metrics, step_of
from primus_hydra.run.paths import RunPaths

TINY = (
    "model.hidden_size=64",
    "model.intermediate_size=128",
    "model.num_hidden_layers=2",
    "model.num_attention_heads=4",
    "model.num_key_value_heads=2",
    "tokenizer.vocab_size=512",
    "training.seq_length=64",
    "training.global_batch_size=8",
    "lr_schedule.warmup_steps=2",
    "platform=cpu",
)
TIMEOUT_S = 240


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a command left: its exit code, and everything it printed."""

    code: int
    output: str


@dataclass(frozen=True)
class Command:
    """The command in a folder of its own."""

    folder: Path

    def run(self, *overrides: str, env: dict[str, str] | None = None, tiny: bool = True) -> Ended:
        """Run to the end."""
        ended = subprocess.run(
            self.argv(*overrides, tiny=tiny),
            cwd=self.folder,
            env=self.environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ended(code=ended.returncode, output=ended.stdout)

    def start(self, *overrides: str) -> subprocess.Popen[str]:
        """Start in the background."""
        return subprocess.Popen(
            self.argv(*overrides),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def argv(self, *overrides: str, tiny: bool = True) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-m", "primus_hydra", *(TINY if tiny else ()), *overrides]

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return this process's environment with one thread for each rank: tests share the cores."""
        return os.environ | {"OMP_NUM_THREADS": "1"} | (more or {})

    def paths(self, name: str) -> RunPaths:
        """Return the paths of a run."""
        return RunPaths(self.folder / "runs" / name)

    def losses(self, name: str) -> dict[int, float]:
        """Return the loss of each step of a run; of a step that was done twice, the later one."""
        rows = last_per_step(read_metrics(self.paths(name).metrics))
        return {step_of(row) or 0: number(row, "loss") or 0.0 for row in rows}

    def stop_after(self, process: subprocess.Popen[str], name: str, step: int, number: signal.Signals) -> Ended:
        """Send a signal to the command once a step is logged, and wait for its end."""
        end = time.monotonic() + TIMEOUT_S
        while max(self.losses(name), default=0) < step:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end, f"step {step} did not come"
            time.sleep(0.05)
        process.send_signal(number)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        return Ended(code=process.returncode, output=output)
