"""`task.action=stop`: ask the launcher of a run to stop, and wait until it has saved.

The launcher decides what the signal means, as when a scheduler sends it. It is only sent to the very process that took
the run's lock, on this machine, never to another one that has its number by now.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from primus_hydra.config.schema import LaunchConfig
from primus_hydra.errors import ExitCode, HostError, Problem
from primus_hydra.run.condition import Condition, condition_of
from primus_hydra.run.lock import Holding, LockHolder, holding
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.process import signal_process
from primus_hydra.run.saved import saved_tree
from primus_hydra.tasks.runs_jobs import job_of
from primus_hydra.tasks.runs_stop_job import stop_job, unasked
from primus_hydra.ui.output import print_json, print_lines
from primus_hydra.ui.runs_text import headline

LOOK_EVERY_S = 0.2
ENDING_S = 60.0
"""What a launcher may need beyond the grace: it ends the ranks, looks at the checkpoints, and draws the plot."""


def stop_run(name: str, root: Path, *, as_json: bool, ending_s: float = ENDING_S) -> int:
    """Stop a run and say what came of it; a run that is not at work is no error.

    Returns 0 once it is at rest, or the exit code of a run that failed in its stop. Raises HostError if its launcher
    is on another machine or another user's, or has not ended within the grace.
    """
    paths = RunPaths(root)
    held = holding(paths.lock)
    job = job_of(paths) if held.life != "alive" else None
    if job is not None and job.look.live:
        return stop_job(name, paths, job, as_json=as_json, ending_s=ending_s)
    if job is not None and job.look.word == "unknown" and held.life in ("unknown", "free"):
        raise HostError(unasked(job))
    asked = held.holder is not None and _ask(paths, held)
    if asked and held.holder is not None:
        grace_s = _grace_s(paths)
        if not as_json:
            print_lines([f"asked {held.holder} to stop; it has at most {grace_s:g} s (launch.stop_grace_s) to save"])
        _wait(paths, held.holder, grace_s + ending_s)
    return _tell(name, paths, asked=asked, as_json=as_json)


def _ask(paths: RunPaths, held: Holding) -> bool:
    """Send the signal to the holder of the lock; False if there is none that lives."""
    holder = held.holder
    if holder is None or held.life in ("free", "dead"):
        return False
    if held.life == "unknown":
        raise HostError(_not_from_here(paths, holder))
    try:
        return signal_process(holder.pid, holder.mark, signal.SIGTERM)
    except PermissionError:
        what = f"{holder} belongs to another user, who alone may stop it"
        raise HostError(Problem(key="task.run", what=what, where=str(paths.root))) from None


def _wait(paths: RunPaths, holder: LockHolder, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while (now := holding(paths.lock)).life == "alive" and now.holder == holder:
        if time.monotonic() > end:
            what = f"{holder} has been asked to stop and has not ended within {limit_s:g} s"
            raise HostError(Problem(key="task.run", what=what, hint=f"task.action=logs; kill -KILL {holder.pid}"))
        time.sleep(LOOK_EVERY_S)


def _tell(name: str, paths: RunPaths, *, asked: bool, as_json: bool) -> int:
    condition = condition_of(paths)
    if as_json:
        print_json({"name": name, "asked": asked, "condition": condition})
    else:
        print_lines([("" if asked else "nothing to stop: ") + headline(name, condition)])
    return _exit_code(condition) if asked else int(ExitCode.DONE)


def _exit_code(condition: Condition) -> int:
    state = condition.state
    return (state.exit_code or 1) if condition.word == "failed" and state else int(ExitCode.DONE)


def _grace_s(paths: RunPaths) -> float:
    launch = (saved_tree(paths.config) or {}).get("launch")
    said = launch.get("stop_grace_s") if isinstance(launch, dict) else None
    return float(said) if isinstance(said, (int, float)) else LaunchConfig().stop_grace_s


def _not_from_here(paths: RunPaths, holder: LockHolder) -> Problem:
    return Problem(
        key="task.run",
        what=f"the run is held by {holder}, and this machine is {os.uname().nodename}",
        where=str(paths.root),
        hint=f"type the same command on {holder.host}, or cancel the job at its scheduler",
    )
