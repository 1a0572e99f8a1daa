"""torch's own elastic agent, which asks our policy before it restarts the ranks.

Everything else is torch's: the rendezvous, the watch over the processes, the restart of the whole group. Imports torch.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous import registry as rendezvous

from primus_hydra.launch.restarts import Decision
from primus_hydra.runtime.spec import AttemptSpec

MONITOR_S = 0.05
"""How often torch looks at the processes: part of the time between a death and the next step."""


class PolicyAgent(LocalElasticAgent):
    """Asks `decide` after every failure; a restart that it refuses is as if none were left."""

    def __init__(self, spec: WorkerSpec, decide: Callable[[], Decision], **rest: Any) -> None:
        super().__init__(spec, **rest)
        self._decide = decide
        self.refusal: str | None = None

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state in (WorkerState.FAILED, WorkerState.UNHEALTHY) and self._remaining_restarts > 0:
            decision = self._decide()
            if decision.restart:
                time.sleep(decision.wait_s)
            else:
                self.refusal = decision.reason
                self._remaining_restarts = 0
        return result


def run_group(
    spec: AttemptSpec,
    entrypoint: Callable[[str], int] | str,
    arguments: tuple[str, ...],
    *,
    start_method: str,
    decide: Callable[[], Decision],
) -> tuple[dict[int, int], str | None]:
    """Start the ranks and watch them to their end; return the exit codes of failed ones, and a refused restart."""
    # torch reads it; the launcher alone decides what the other signals mean.
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGHUP"
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint="127.0.0.1:0",
        run_id=f"attempt-{spec.attempt}",
        min_nodes=1,
        max_nodes=1,
        # Without it the agent looks up its own host name, which need not resolve.
        local_addr="127.0.0.1",
    )
    handler = rendezvous.get_rendezvous_handler(parameters)
    group = WorkerSpec(
        role="default",
        local_world_size=spec.layout.ranks_per_node,
        entrypoint=entrypoint,
        args=arguments,
        rdzv_handler=handler,
        max_restarts=spec.max_restarts,
        monitor_interval=MONITOR_S,
        local_addr="127.0.0.1",
    )
    logs = DefaultLogsSpecs(log_dir=str(spec.attempt_paths.errors))
    agent = PolicyAgent(group, decide, logs_specs=logs, start_method=start_method)
    try:
        result = agent.run()
    finally:
        handler.shutdown()
    if agent.refusal:
        print(f"no further restart: {agent.refusal}", file=sys.stderr, flush=True)
    return {rank: failure.exitcode for rank, failure in result.failures.items()}, agent.refusal
