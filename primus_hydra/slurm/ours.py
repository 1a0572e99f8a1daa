"""Whether a task still belongs to the present start of its job: a node that was cut off from Slurm does not know it.

Slurm starts the job again elsewhere, under the same number, and with the same numbers of its steps. Whatever such a
task, its srun or its script tell Slurm from then on, Slurm takes for news of the new start: an srun that sees its task
fail asks for the end of the step, and Slurm ends the new one. So a task that may be of the past does not end, and waits
to be ended.
"""

from __future__ import annotations

import time
from typing import Literal

from primus_hydra.launch.cluster.allocation import ClusterNode
from primus_hydra.slurm.client import Answer, Call, call
from primus_hydra.slurm.state import state_and_restarts

Standing = Literal["works", "over", "unknown"]
WAIT_S = 24 * 3600.0
"""How long a task waits to be ended; a node that is away for longer has been set up anew, or nobody misses it."""
AGAIN_S = 5.0


def standing(node: ClusterNode, ask: Call = call, *, wait_s: float = 0.0) -> Standing:
    """Return whether this very start of the job works, or Slurm has ended it or started another.

    A controller that is away is asked again for `wait_s`; then, and where it cannot be asked at all, it is unknown.
    """
    answer = patiently(["scontrol", "--oneliner", "show", "job", node.job_id], ask, wait_s)
    found = state_and_restarts(answer.out) if answer.code == 0 else None
    if found is None:
        return "unknown"
    return "works" if found == ("RUNNING", node.restart) else "over"


def await_end_if_over(node: ClusterNode, ask: Call = call) -> None:
    """Return at once if this start of the job works; else, and while Slurm cannot be reached, wait to be ended."""
    end = time.monotonic() + WAIT_S
    if standing(node, ask, wait_s=WAIT_S) != "over":
        return
    print(f"Slurm has ended this start of job {node.job_id}: waiting for it to end this task", flush=True)
    while time.monotonic() < end:
        time.sleep(AGAIN_S)


def patiently(argv: list[str], ask: Call, wait_s: float) -> Answer:
    """Ask until the controller answers, for so long at most."""
    end = time.monotonic() + wait_s
    while (answer := ask(argv)).unreachable and not answer.missing and time.monotonic() < end:
        time.sleep(AGAIN_S)
    return answer
