"""Tasks that measure nodes: on this machine, or on those that Slurm gives, the first node asking and the others acting.

Nothing is trained, so there is no run: what was found goes into a folder of its own. Refuses several nodes without a
launcher, an outer launcher that starts ranks, and containers: the nodes themselves are measured.
"""

from __future__ import annotations

import os
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import Problem, raise_all
from primus_hydra.tasks.contract import Task

if TYPE_CHECKING:
    from primus_hydra.launch.cluster.allocation import ClusterNode
    from primus_hydra.measure.hands import Act, Hands
    from primus_hydra.measure.session import Session


class MeasuringTask(Task):
    """A task whose work is done by the first of some nodes, through a session with all of them."""

    slurm: ClassVar[Literal["submits", "ignores"] | None] = "submits"

    @abstractmethod
    def problems(self, job: JobConfig) -> list[Problem]:
        """Return everything that is wrong with what is asked for; nothing has been started yet."""

    @abstractmethod
    def folder_name(self, job: JobConfig) -> str:
        """Return how the folder of the results begins."""

    @abstractmethod
    def acts(self, job: JobConfig, folder: Path) -> Mapping[str, Act]:
        """Return what a node of this task can do beside asking its devices."""

    @abstractmethod
    def lead(self, session: Session, job: JobConfig, folder: Path) -> int:
        """Measure and report, on the first node; return the exit code of the command."""

    @abstractmethod
    def join_s(self) -> float:
        """Return how long nodes wait for each other, in seconds."""

    @abstractmethod
    def life_s(self, job: JobConfig) -> float:
        """Return the longest time that all of it may take, in seconds."""

    @abstractmethod
    def place(self) -> str:
        """Return the folder that holds the folders of results."""

    def left_alone(self, job: JobConfig, folder: Path, host: str) -> None:
        """Leave word, on a node that the first one does not answer; nothing by default."""
        del job, folder, host

    def salvage(self, job: JobConfig, folder: Path, hosts: Sequence[str], why: str, hung: str | None) -> int:
        """Say what can still be said where the first node did not come to its end; return the exit code."""
        del job, hosts, hung
        print(f"nothing was measured: {why} (see {folder})")
        return 3

    @abstractmethod
    def show(self, folder: Path) -> int | None:
        """Print the result that lies in a folder and return the exit code; None if there is none yet."""

    def devices(self, job: JobConfig) -> int:
        """Return how many devices of a node are used."""
        from primus_hydra.preflight.wanted import device_count

        return device_count(job)

    def run(self, composed: Composed) -> int:
        """Measure here or on Slurm's nodes."""
        return self.run_in(composed, self.new_folder(composed.job))

    def run_in(self, composed: Composed, folder: Path) -> int:
        """Measure, and leave the results in a folder that is not there yet."""
        raise_all([*self.problems(composed.job), *common_problems(composed)])
        if composed.launcher == "submitit":
            from primus_hydra.tasks.measuring_submit import submit_and_wait  # only here: submitit is slow to import

            return submit_and_wait(self, composed, folder)
        from primus_hydra.launch.cluster.allocation import ClusterNode

        host = os.uname().nodename
        node = ClusterNode(job_id="local", restart=0, index=0, hosts=(host,), port=0)
        return lead_here(self, composed.job, node, folder)

    def new_folder(self, job: JobConfig) -> Path:
        """Return a folder for the results that is not there yet."""
        stem = f"{self.folder_name(job)}-{job.launch.nodes}n-{time.strftime('%Y%m%d-%H%M%S')}"
        root = Path(self.place()).expanduser().absolute()
        names = [stem, *(f"{stem}-{number}" for number in range(2, 100))]
        return next(root / name for name in names if not (root / name).exists())


def common_problems(composed: Composed) -> list[Problem]:
    """Return what stands against measuring as the job asks for it."""
    from primus_hydra.launch.outer import outer_launch

    job, found = composed.job, []
    if outer_launch(os.environ) is not None:
        what = "this command was started as one of several ranks, and each would measure"
        found.append(
            Problem(key="task", what=what, hint="type it without torchrun or srun, with hydra/launcher=submitit")
        )
    if job.launch.container.kind != "none":
        what = "the nodes themselves are measured, not a container on them"
        found.append(Problem(key="launch.container.kind", what=what, hint="leave the container out"))
    if job.launch.nodes > 1 and composed.launcher != "submitit":
        what = f"{job.launch.nodes} nodes cannot be measured from this machine alone"
        found.append(Problem(key="launch.nodes", what=what, hint="start through Slurm: hydra/launcher=submitit"))
    return found


def lead_here(task: MeasuringTask, job: JobConfig, node: ClusterNode, folder: Path) -> int:
    """Be the first node, or the only one."""
    from primus_hydra.measure.beat import beating
    from primus_hydra.measure.session import Session

    folder.mkdir(parents=True, exist_ok=True)
    hands = hands_of(task, job, node, folder)
    with beating(folder), Session(node, hands, say=_say) as session:
        return task.lead(session, job, folder)


def hands_of(task: MeasuringTask, job: JobConfig, node: ClusterNode, folder: Path) -> Hands:
    """Return what this node does when it is asked."""
    from primus_hydra.launch.outer import python_argv
    from primus_hydra.measure.hands import Hands

    return Hands(
        python=python_argv(),
        environment={**os.environ, **_variables(job, node, task.devices(job))},
        on_gpu=not job.platform.is_cpu,
        logs=folder / "logs",
        name=node.host,
        acts=task.acts(job, folder),
    )


def _variables(job: JobConfig, node: ClusterNode, devices: int) -> dict[str, str]:
    """Return the environment that ranks of this job would have, but for what is said of a run."""
    from primus_hydra.host.cores import usable_cores
    from primus_hydra.launch.environment import rank_environment
    from primus_hydra.launch.node_environment import node_network

    variables = rank_environment(
        job,
        run_dir="",
        attempt=1,
        ranks_on_node=devices,
        single_node=node.nodes == 1,
        cores=usable_cores(),
        backend_env={},
        inherited=os.environ,
        asked=node_network(job, node),
    )
    return {one.name: one.value for one in variables if not one.name.startswith("PRIMUS_")}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
