"""One node of a Slurm job: `srun ... python -m primus_hydra.node --run RUN_DIR [--submission N] < JOB`.

Every node's task reads the same resolved job from its standard input. The first node does what the command does on one
machine: it takes the run's lock, prepares the data, chooses the checkpoint and makes the attempt. The others are told
by it what to run. Each starts and watches the ranks of its node; the first one tells the end of all, with which every
task ends, so that Slurm's verdict is the run's. A job that was told to save, and that Slurm does not start again by
itself, is put back into the queue.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import yaml

from primus_hydra.config.build import parse_job
from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import ExitCode, HostError, PrimusError, Problem, UserError
from primus_hydra.guard import guarded
from primus_hydra.launch.cluster.allocation import ClusterNode, cluster_node
from primus_hydra.launch.cluster.early import StoppedEarly, early_stops
from primus_hydra.launch.cluster.fence import Fence
from primus_hydra.launch.cluster.grace import stop_grace_s
from primus_hydra.launch.cluster.meeting import Guest, Host
from primus_hydra.launch.containment import contain, is_contained, python_inside
from primus_hydra.launch.local import launch
from primus_hydra.launch.node_environment import prepare_node
from primus_hydra.launch.outer import python_argv
from primus_hydra.launch.plan import plan_node
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.run.history import read_end
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.saved import read_command, saved_sources
from primus_hydra.run.submission import stop_is_asked
from primus_hydra.runtime.spec import NODE_VARIABLE, AttemptSpec
from primus_hydra.slurm.ours import await_end_if_over
from primus_hydra.slurm.requeue import go_back
from primus_hydra.tasks.contract import make_task
from primus_hydra.tasks.runs_resume import going_on, job_at

MODULE = "primus_hydra.node"
"""What the batch script starts on every node."""

FIRST_WORD_LIMIT_S = 4 * 3600.0
"""How long the other nodes wait for the first, which may have a corpus to prepare."""
VISIBLE_LIMIT_S = 60.0
"""How long a file of the first node may take to show on another (caches of network file systems)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run this node's part of the job; returns the exit code of the whole."""
    return guarded(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="directory of the run")
    parser.add_argument("--submission", type=int, help="number of the submission in that directory")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    node = cluster_node(os.environ)
    job = _read_job(sys.stdin.read())
    os.environ[NODE_VARIABLE] = str(node.index)
    # Somebody's shell may say it; from here on each of our processes says it to its own children.
    os.environ.pop("MASTER_ADDR", None)
    # srun may give a task a terminal that is none: its output goes to a file.
    os.environ["TERM"] = "dumb"
    paths = RunPaths(arguments.run.absolute())
    return lead(node, job, paths, arguments.submission) if node.is_main else follow(node, job)


def lead(node: ClusterNode, job: JobConfig, paths: RunPaths, submission: int | None) -> int:
    """Be the first node: make the attempt, put the job back into the queue if it has to go on, and tell the others."""
    fence = Fence(paths, node.run_id, lambda why: _leave(node, why))
    with Host(node, grace_s=stop_grace_s(job), fence=fence) as host:
        told = early_stops()
        try:
            with host.shared():
                code = make_task(job.task).run(_composed(job, paths, submission, again=node.restart > 0))
            stopped_by = _stopped_by(paths) if code == ExitCode.REQUEUE else None
        except StoppedEarly as stop:
            print(f"{signal.Signals(stop.signal).name} before any rank was started", flush=True)
            code, stopped_by = int(ExitCode.REQUEUE), stop.signal
        told.ignore()
        if stopped_by is not None and not (submission is not None and stop_is_asked(paths, submission)):
            # Before the others end: srun kills this task as soon as one of them has ended.
            go_back(node, job.launch.slurm, stopped_by)
        host.bye(code)
    if host.was_left_alone:
        await_end_if_over(node)
    return code


def _stopped_by(paths: RunPaths) -> int | None:
    """Return the signal that ended the newest attempt, as it says itself."""
    numbers = paths.attempt_numbers()
    end = read_end(paths.attempt(numbers[-1]).ended) if numbers else None
    return None if end is None else end.signal


def _leave(node: ClusterNode, why: str) -> NoReturn:
    """Go no further: the run is another's, and nothing that would be written now is true of it."""
    print(why, flush=True)
    await_end_if_over(node)
    os._exit(1)


def follow(node: ClusterNode, job: JobConfig) -> int:
    """Be another node: start what the first one says, and end with it."""
    told = early_stops(obey=False)  # the first node decides, and has got the signal as well
    guest = Guest(node)
    word = guest.word(FIRST_WORD_LIMIT_S)
    if "spec" not in word:
        return int(word.get("bye", ExitCode.BUG))
    try:
        result = _launch_here(guest.node, job, Path(word["spec"]), guest)
    except PrimusError as error:  # the first node tells it
        result = LaunchResult(exit_code=int(error.exit_code), message=str(error))
    told.ignore()
    code = guest.leave(result, limit_s=FIRST_WORD_LIMIT_S)
    if guest.was_left_alone:
        await_end_if_over(node)
    guest.close()
    return code


def _launch_here(node: ClusterNode, job: JobConfig, path: Path, guest: Guest) -> LaunchResult:
    _wait_until_visible(path)
    spec, spoken = AttemptSpec.read(path), _Spoken(node.host)
    prepared = prepare_node(spec, job, node, inherited=os.environ, python=python_argv(), say=spoken.say)
    if prepared.refusal is not None:
        return prepared.refusal
    python = python_inside(job) if is_contained(job) else python_argv()
    plan = plan_node(spec, job, node, python=python, environment=prepared.variables)
    return launch(contain(plan, job), spoken, elsewhere=guest)


class _Spoken:
    """Shows what a node has to say as plain lines, in the job's output."""

    def __init__(self, host: str) -> None:
        self._host = host

    def tick(self) -> None:
        """Show no progress: the first node does."""

    def say(self, text: str) -> None:
        """Print a line."""
        print(f"{self._host}: {text}", flush=True)


def _read_job(text: str) -> JobConfig:
    try:
        return parse_job(text)
    except yaml.YAMLError as error:
        raise UserError(Problem(what=f"the job on standard input cannot be read: {error}")) from error


def _composed(job: JobConfig, paths: RunPaths, submission: int | None, *, again: bool) -> Composed:
    """Return the job as it was submitted; a job that Slurm starts again goes on from its checkpoint."""
    submitted = None if submission is None else paths.submission(submission)
    placed = dataclasses.replace(job, run=dataclasses.replace(job.run, fresh=False))
    return job_at(
        paths,
        going_on(placed) if again else placed,
        None if submitted is None else read_command(submitted.command),
        {} if submitted is None else saved_sources(submitted.provenance),
    )


def _wait_until_visible(path: Path) -> None:
    end = time.monotonic() + VISIBLE_LIMIT_S
    while not path.exists():
        if time.monotonic() > end:
            raise HostError(Problem(key="run.dir", what=f"{path} of the first node is not visible here"))
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
