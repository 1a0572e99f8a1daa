"""A task of a node that trains nothing: it reads its job as the real one does, and the first node leaves a run's files.
Its loss is the learning rate.

`env.STAND_IN` of the job says what it does: a number of seconds to work, then `:` and the exit code (`0.5:7`). Told to
save (SIGUSR2, SIGTERM) it ends with 75.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import yaml

from primus_hydra.run.history import AttemptEnd, EndWord, write_end
from primus_hydra.run.lock import RunLock
from primus_hydra.run.metrics import MetricsWriter
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import RunState, Status, write_state

_WORDS: dict[int, EndWord] = {0: "finished", 75: "saved"}


def main() -> int:
    """Work as the job says, and return the exit code."""
    told: list[int] = []
    for number in (signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: told.append(got))
    job = yaml.safe_load(sys.stdin.read())
    seconds, _, code = job["env"].get("STAND_IN", "0.2:0").partition(":")
    paths = RunPaths(Path(sys.argv[sys.argv.index("--run") + 1]))
    if os.environ["SLURM_PROCID"] != "0":
        return _work(float(seconds), int(code), told)
    with RunLock(paths.lock):
        return _first(paths, job, float(seconds), int(code), told)


def _first(paths: RunPaths, job: dict[str, dict[str, int]], seconds: float, code: int, told: list[int]) -> int:
    number = max(paths.attempt_numbers(), default=0) + 1
    paths.attempt(number).root.mkdir(parents=True)
    print(f"attempt {number} on {os.environ['SLURM_JOB_NODELIST']}, a value is {job['env'].get('VALUE')!r}", flush=True)
    _state(paths, number, "running", job)
    metrics = MetricsWriter(paths.metrics, attempt=number, restart=0)
    metrics.write({"step": 3, "loss": job["optimizer"]["lr"]})
    ended = _work(seconds, code, told)
    word = _WORDS.get(ended, "failed")
    _state(paths, number, word, job)
    message = f"the stand-in ended with {ended}"
    end = AttemptEnd(status=word, exit_code=ended, message=message, step=3, restarts=0, time=time.time())
    write_end(paths.attempt(number).ended, end)
    return ended


def _work(seconds: float, code: int, told: list[int]) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not told:
        time.sleep(0.02)
    if told:
        time.sleep(0.5)  # a save takes its time
    return 75 if told else code


def _state(paths: RunPaths, attempt: int, status: Status, job: dict[str, dict[str, int]]) -> None:
    now, steps = time.time(), job["training"]["steps"]
    write_state(
        paths.state, RunState(status=status, step=3, steps=steps, attempt=attempt, started_at=now, updated_at=now)
    )


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
