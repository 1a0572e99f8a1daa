"""A launcher without ranks: `made_launcher.py RUN HOW` holds a run, logs a step now and then, and stops as told.

`HOW`: `saves` and `fails` end half a second after SIGTERM, `ignores` does not; `finishes` ends by itself after a few
steps, in the middle of which it truncates its metrics.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from primus_hydra.run.lock import RunLock
from primus_hydra.run.metrics import MetricsWriter
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import RunState, Status, write_state


def note(paths: RunPaths, began: float, status: Status, step: int, code: int | None = None, message: str = "") -> None:
    write_state(
        paths.state,
        RunState(
            status=status,
            step=step,
            steps=20,
            attempt=1,
            started_at=began,
            updated_at=time.time(),
            exit_code=code,
            message=message or None,
        ),
    )


def main(root: Path, how: str) -> None:
    paths, told, began = RunPaths(root), [], time.time()
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    with RunLock(paths.lock, ["a", "launcher"]):
        paths.attempt(1).root.mkdir(parents=True, exist_ok=True)
        note(paths, began, "running", 0)
        metrics = MetricsWriter(paths.metrics, 1, 0)
        print("began", flush=True)
        for step in range(1, 6 if how == "finishes" else 10_000):
            metrics.write({"step": step, "loss": 1.0 / step})
            time.sleep(0.3)
            if how == "finishes" and step == 3:
                os.truncate(paths.metrics, 0)
            if told and how != "ignores":
                break
        ends = {"fails": ("failed", 9, "rank 0 failed"), "finishes": ("finished", 0, "finished at step 5")}
        status, code, message = ends.get(how, ("saved", 75, f"stopped and saved at step {step}"))
        note(paths, began, status, step, code, message)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
