"""What `task=train` does before it starts ranks and `task=plan` only tells: where the run stands, and its launch plan.

One function makes the launch plan of both, so that what is shown is what is executed. Nothing here writes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import JobConfig
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import Problem, UserError
from primus_hydra.host.cores import usable_cores
from primus_hydra.host.topology import read_topology
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.launch.cluster.meeting import current_host
from primus_hydra.launch.containment import contain, is_contained, python_inside
from primus_hydra.launch.environment import EnvVariable
from primus_hydra.launch.node_environment import node_network
from primus_hydra.launch.outer import outer_launch, python_argv
from primus_hydra.launch.plan import LaunchPlan, plan_launch
from primus_hydra.run.checkpoints import SetAside, find_checkpoint
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import read_state
from primus_hydra.tasks.readiness import Ready
from primus_hydra.tasks.run_folder import next_attempt, refuse_other_training, run_paths

StandingKind = Literal["new", "resume", "restart", "finished", "refused"]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a run stands before an attempt.

    `new`: there was no attempt; `resume`: it goes on from `step`; `restart`: there were attempts, and it starts from
    nothing; `finished`: nothing is left to do; `refused`: `problems` say why it may not go on. `set_aside` are damaged
    checkpoints newer than `step`, still under their own names.
    """

    kind: StandingKind
    paths: RunPaths
    attempt: int
    step: int | None = None
    set_aside: tuple[SetAside, ...] = ()
    problems: tuple[Problem, ...] = ()


def standing_of(composed: Composed) -> Standing:
    """Find out where the run of a job stands; nothing is renamed, locked or made."""
    paths, job = run_paths(composed), composed.job
    number = next_attempt(paths)
    try:
        refuse_other_training(paths, composed.tree, job.resume)
        if is_finished(paths, job):
            return Standing(kind="finished", paths=paths, attempt=number - 1, step=_last_step(paths))
        choice = find_checkpoint(paths, job.resume)
    except UserError as error:
        return Standing(kind="refused", paths=paths, attempt=number, problems=error.problems)
    kind: StandingKind = "resume" if choice.step is not None else "new" if number == 1 else "restart"
    return Standing(kind=kind, paths=paths, attempt=number, step=choice.step, set_aside=choice.set_aside)


def plan_attempt(
    composed: Composed,
    ready: Ready,
    paths: RunPaths,
    *,
    attempt: int,
    data: PreparedData | None,
    resume_from: int | None,
    hooks: Sequence[EnvVariable] = (),
    planned: ClusterNode | None = None,
) -> LaunchPlan:
    """Plan an attempt from this process: its environment, cores, GPUs, interpreter, outer launcher or cluster.

    `data` is None where nothing was prepared, for a plan that is not executed; `hooks` is what hooks have set;
    `planned` stands for the first node of a job that is not allocated yet.
    Raises as `plan_launch` does, and HostError for a network that this node of a cluster cannot serve.
    """
    host = current_host()
    plan = plan_launch(
        composed.job,
        ready.layout,
        paths=paths,
        attempt=attempt,
        data=data,
        resume_from=resume_from,
        backend=ready.backend,
        inherited=os.environ,
        cores=usable_cores(),
        python=python_inside(composed.job) if is_contained(composed.job) else python_argv(),
        topology=read_topology(ready.gpus) if planned is None else None,
        outer=outer_launch(os.environ) if host is None and planned is None else None,
        cluster=host.node if host is not None else planned,
        network=node_network(composed.job, host.node) if host is not None else (),
        hooks=hooks,
    )
    return contain(plan, composed.job)


def is_finished(paths: RunPaths, job: JobConfig) -> bool:
    """Whether the run has done all its steps, and is not asked to start from nothing."""
    state = read_state(paths.state)
    if job.resume == "never" or state is None:
        return False
    return state.status == "finished" and state.step >= job.training.steps


def _last_step(paths: RunPaths) -> int | None:
    state = read_state(paths.state)
    return state.step if state else None
