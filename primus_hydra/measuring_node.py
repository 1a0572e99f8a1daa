"""One node of a measuring job: `srun ... python -m primus_hydra.measuring_node --out FOLDER < JOB`.

Every node's task reads the same job from its standard input. The first node asks, the others do what it asks; one that
the first does not answer leaves word of itself in the folder. Each ends in bounded time.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from primus_hydra.config.build import parse_job
from primus_hydra.config.schema import JobConfig
from primus_hydra.errors import ExitCode, HostError
from primus_hydra.guard import guarded
from primus_hydra.launch.cluster.allocation import ClusterNode, cluster_node
from primus_hydra.measure.beat import note_here
from primus_hydra.measure.session import attend
from primus_hydra.tasks.contract import make_task
from primus_hydra.tasks.measuring import MeasuringTask, hands_of, lead_here

MODULE = "primus_hydra.measuring_node"


def main(argv: Sequence[str] | None = None) -> int:
    """Take this node's part; returns its exit code."""
    return guarded(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    node, job = cluster_node(os.environ), parse_job(sys.stdin.read())
    os.environ.pop("MASTER_ADDR", None)
    note_here(arguments.out, node.host)
    task = make_task(job.task)
    assert isinstance(task, MeasuringTask)
    return lead_here(task, job, node, arguments.out) if node.is_main else _follow(task, job, node, arguments.out)


def _follow(task: MeasuringTask, job: JobConfig, node: ClusterNode, folder: Path) -> int:
    hands = hands_of(task, job, node, folder)
    try:
        return attend(node, hands, join_limit_s=task.join_s(), life_s=task.life_s(job))
    except HostError as error:
        print(error, flush=True)
        task.left_alone(job, folder, node.host)
        return int(ExitCode.HOST)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # What hangs in a thread (a file system, a driver's tool) must not keep the job alive.
    os._exit(code)
