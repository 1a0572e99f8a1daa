"""torch's own elastic agent, which asks our policy before it restarts the ranks, and loses no time when one dies.

Everything else is torch's: starting the processes, the verdict on them, the restart of the whole group. Imports torch.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext

from primus_hydra.launch.deaths import Deaths
from primus_hydra.launch.many_nodes import ManyNodes
from primus_hydra.launch.one_node import LOOPBACK, OneNode
from primus_hydra.launch.restarts import Decision
from primus_hydra.runtime.outcome import read_outcome
from primus_hydra.runtime.spec import AttemptSpec, this_node

LOOK_S = 0.05
"""How often torch looks at the processes if none of them ends."""
SETTLE_S = 0.005
"""Between two looks: a process that has just ended is collected by its fork server before torch can see it."""


class PolicyAgent(LocalElasticAgent):
    """Asks `decide` after every failure of start N; a restart that it refuses is as if none were left."""

    def __init__(self, attempt: AttemptSpec, spec: WorkerSpec, decide: Callable[[int], Decision], **rest: Any) -> None:
        super().__init__(spec, **rest)
        self._attempt = attempt
        self._decide = decide
        self._stages = attempt.stages("agent")
        self._deaths = Deaths({})
        self.refusal: str | None = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        handler = worker_group.spec.rdzv_handler
        if isinstance(handler, ManyNodes):
            # torch counts only the restarts that the ranks of this node were the cause of.
            self._remaining_restarts = worker_group.spec.max_restarts - handler.restarts
        self._stages.restart = worker_group.spec.max_restarts - self._remaining_restarts
        self._stages.reached("rendezvous done")
        started: dict[int, Any] = super()._start_workers(worker_group)
        self._stages.reached("ranks started")
        self._deaths.close()
        # torch counts the ranks of this node; outcomes carry the job's numbers.
        self._deaths = Deaths({worker_group.workers[local].global_rank: pid for local, pid in started.items()})
        if self._pcontext is not None:
            self._end_promptly(self._pcontext)
        return started

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self._deaths.wait(LOOK_S):
            self._stages.reached("rank ended")
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state in (WorkerState.FAILED, WorkerState.UNHEALTHY):
            self._stages.reached("ranks ended")
        if result.state in (WorkerState.FAILED, WorkerState.UNHEALTHY) and self._remaining_restarts > 0:
            decision = self._decide(self._stages.restart)
            if decision.restart:
                time.sleep(decision.wait_s)
            else:
                self.refusal = decision.reason
                self._remaining_restarts = 0
        return result

    def _end_promptly(self, context: PContext) -> None:
        """Let torch kill the other ranks where it would ask them to stop, if one has died without a word.

        They cannot finish anything together any more. torch asks only after it has seen whose death was the first.
        """
        close = context.close

        def close_promptly(death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
            close(signal.SIGKILL if self._silent_death() else death_sig, timeout)

        context.close = close_promptly  # type: ignore[method-assign]
        forked = getattr(context, "_pc", None)
        for process in forked.processes if forked is not None else ():
            process.terminate = functools.partial(self._terminate, process)

    def _terminate(self, process: BaseProcess) -> None:
        if self._silent_death():
            process.kill()
        else:
            type(process).terminate(process)

    def _silent_death(self) -> bool:
        self._deaths.wait(0)
        return any(not self._has_spoken(rank) for rank in self._deaths.ended)

    def _has_spoken(self, rank: int) -> bool:
        outcome = read_outcome(self._attempt.attempt_paths.outcome(rank))
        return outcome is not None and outcome.restart == self._stages.restart


def run_group(
    spec: AttemptSpec,
    entrypoint: Callable[[str], int] | str,
    arguments: tuple[str, ...],
    *,
    start_method: str,
    decide: Callable[[int], Decision],
    meeting: tuple[str, int] | None = None,
) -> tuple[dict[int, int], str | None]:
    """Start the ranks and watch them to their end; return the exit codes of failed ones, and a refused restart.

    `meeting` is host and port at which the agents of several nodes meet; this node's number is in the environment.
    """
    # torch reads it; the launcher alone decides what the other signals mean.
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGHUP"
    handler: OneNode | ManyNodes = OneNode(f"attempt-{spec.attempt}")
    if meeting is not None:
        handler = ManyNodes(f"attempt-{spec.attempt}", meeting, node=this_node(), nodes=spec.layout.nodes)
    group = WorkerSpec(
        role="default",
        local_world_size=spec.layout.ranks_per_node,
        entrypoint=entrypoint,
        args=arguments,
        rdzv_handler=handler,
        max_restarts=spec.max_restarts,
        monitor_interval=SETTLE_S,
        # Without it the agent looks up its own host name, which need not resolve.
        local_addr=LOOPBACK if meeting is None else meeting[0],
    )
    logs = DefaultLogsSpecs(log_dir=str(spec.attempt_paths.errors))
    agent = PolicyAgent(spec, group, decide, logs_specs=logs, start_method=start_method)
    try:
        result = agent.run()
    finally:
        handler.shutdown()
    if agent.refusal:
        print(f"no further restart: {agent.refusal}", file=sys.stderr, flush=True)
    return {rank: failure.exitcode for rank, failure in result.failures.items()}, agent.refusal
