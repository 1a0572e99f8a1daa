"""Run directories as training leaves them, made up: what `task=runs` is tried on without any training."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_hydra.config.build import dump_job
from primus_hydra.config.resolve import leaves_of
from primus_hydra.run.atomic import write_json
from primus_hydra.run.history import AttemptEnd, write_end
from primus_hydra.run.lock import LockHolder
from primus_hydra.run.manifest import write_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.process import start_mark
from primus_hydra.run.saved import RunCommand, write_command
from primus_hydra.run.state import RunState, write_state
from tests.support import job_tree, make_job

HOUR_S = 3600.0


def make_run(
    base: Path,
    name: str,
    *,
    status: str = "finished",
    step: int = 20,
    age_s: float = 60.0,
    attempts: int = 1,
    overrides: Mapping[str, Any] | None = None,
) -> RunPaths:
    """Make a run of 20 steps that wrote its last news `age_s` ago; every attempt before the last one failed."""
    paths, now = RunPaths(base / name), time.time() - age_s
    values = {"run.dir": str(base), "run.name": name, "training.steps": 20, **(overrides or {})}
    paths.root.mkdir(parents=True)
    paths.config.write_text(dump_job(make_job(values)))
    schema = {"kind": "schema", "text": "schema default", "file": None, "line": None}
    typed = {key: {**schema, "kind": "override", "text": f"override 1: {key}={value}"} for key, value in values.items()}
    write_json(paths.provenance, {leaf: typed.get(leaf, schema) for leaf in leaves_of(job_tree(values))})
    end = {"message": f"{status} at step {step}", "exit_code": 0 if status == "finished" else 1}
    for number in range(1, attempts + 1):
        make_attempt(paths, number, now - (attempts - number) * HOUR_S, step=step)
    if status != "running":
        write_end(paths.attempt(attempts).ended, AttemptEnd(status=status, step=step, restarts=1, time=now, **end))
    else:
        paths.attempt(attempts).ended.unlink()
    state = RunState(status=status, step=step, steps=20, attempt=attempts, started_at=now - 100, updated_at=now)
    write_state(paths.state, state if status == "running" else dataclasses.replace(state, **end))
    return paths


def make_attempt(paths: RunPaths, number: int, now: float, *, step: int) -> None:
    """Make an attempt of 100 s that failed after one restart of its ranks, and what its ranks wrote."""
    attempt = paths.attempt(number)
    spent = {"startup": 10.0, "step": 30.0, "checkpoint": 5.0}
    starts = [{"restart": restart, "spent": spent} for restart in (0, 1)]
    write_json(attempt.times, {"began": now - 100, "ended": now, "starts": starts})
    command = RunCommand(
        argv=("python", "-m", "primus_hydra", f"run.name={paths.root.name}"),
        overrides=(f"run.name={paths.root.name}",),
        swept=(),
        folder=str(Path.cwd()),
    )
    write_command(attempt.command, command)
    end = AttemptEnd(
        status="failed", exit_code=7, message="rank 1 ended with exit code 7", step=step, restarts=1, time=now
    )
    write_end(attempt.ended, end)
    mark = {"time": now, "attempt": number, "restart": 1}
    with paths.metrics.open("a") as file:
        for done in range(1, step + 1):
            measured = {"loss": 4.0 - done / 10, "lr": 1e-3, "tokens_per_s": 2048.0, "step_time_s": 1.0}
            file.write(json.dumps({"step": done, **measured, **mark}) + "\n")
    for rank in (0, 1):
        log = paths.rank_log(rank)
        log.parent.mkdir(exist_ok=True)
        with log.open("a") as file:
            file.writelines(f"rank {rank} attempt {number} line {line}\n" for line in range(1, 61))


def make_checkpoint(paths: RunPaths, step: int, *, complete: bool = True) -> Path:
    """Make a checkpoint of one small file, with its manifest or cut short."""
    folder = paths.checkpoint(step)
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(b"weights")
    if complete:
        write_manifest(folder, step)
    return folder


def hold(paths: RunPaths, *, pid: int | None = None, **changes: Any) -> LockHolder:
    """Write into the lock that a process, this one unless told otherwise, holds the run."""
    holder = LockHolder(
        host=socket.gethostname(),
        pid=pid or os.getpid(),
        since=time.time() - 200,
        command="python -m primus_hydra run.name=it",
        mark=start_mark(pid or os.getpid()),
    )
    holder = dataclasses.replace(holder, **changes)
    paths.root.mkdir(parents=True, exist_ok=True)
    paths.lock.write_text(json.dumps(dataclasses.asdict(holder)))
    return holder
