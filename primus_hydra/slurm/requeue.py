"""Putting a job that has saved back into the queue, from inside it: what Slurm does not do by itself.

Told to go by the warning before its time limit, or with a grace before a preemption, a job that saves and ends would
have ended for good. One that Slurm has put back or cancelled already is left alone.
"""

from __future__ import annotations

import signal

from primus_hydra.config.schema import SlurmConfig
from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.slurm.client import Call, call
from primus_hydra.slurm.ours import patiently, standing

LIMIT_S = 600.0
"""How long a controller that is away is waited for; Slurm itself ends a job whose time is over."""


def go_back(node: ClusterNode, slurm: SlurmConfig, told: int, ask: Call = call) -> bool:
    """Put the job back into the queue if it works and may go on; return whether it was.

    `told` is the signal that it got. Of a Ctrl-C nobody wants more; what is done is printed.
    """
    if told not in (signal.SIGTERM, signal.SIGUSR2):
        return False
    # Another start of the job is not ours to put back.
    if standing(node, ask, wait_s=LIMIT_S) == "over":
        return False
    if not slurm.requeue or (slurm.max_requeues is not None and node.restart >= slurm.max_requeues):
        print(f"not put back into the queue (launch.slurm.requeue, launch.slurm.max_requeues): start {node.restart}")
        return False
    print(f"job {node.job_id} goes back into the queue", flush=True)
    answer = patiently(["scontrol", "requeue", node.job_id], ask, LIMIT_S)
    if answer.code != 0:
        print(f"it could not be put back into the queue: {answer.words}", flush=True)
    return answer.code == 0
