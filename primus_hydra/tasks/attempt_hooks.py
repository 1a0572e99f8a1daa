"""The hooks of an attempt, as `task=train` runs them: two phases before the ranks, one after their end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from primus_hydra.config.schema import JobConfig
from primus_hydra.hooks.context import Outcome
from primus_hydra.hooks.entry import Phase, read_hooks
from primus_hydra.hooks.exchange import check_functions
from primus_hydra.hooks.record import HookEnd
from primus_hydra.hooks.runner import HookRunner, PhaseEnd
from primus_hydra.hooks.values import HookValues
from primus_hydra.launch.environment import hook_variables
from primus_hydra.launch.node_environment import Prepared, refusal_of
from primus_hydra.launch.outer import python_argv
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.run.paths import RunPaths
from primus_hydra.ui.progress import ProgressView

_LAST_LINES = 5
"""Of what a failed hook printed, as many lines are shown; all of them are in the log."""


def check_hooks(job: JobConfig) -> None:
    """Look whether the functions among the hooks can be called; raises UserError with everything that is wrong."""
    hooks, _ = read_hooks(job.hooks)
    check_functions(hooks, python_argv(), os.environ)


class AttemptHooks:
    """The hooks of one attempt on its first node, which is the only one unless a cluster has more."""

    def __init__(self, job: JobConfig, paths: RunPaths, attempt: int, view: ProgressView) -> None:
        hooks, _ = read_hooks(job.hooks)
        self._paths = paths
        self._view = view
        self._values = HookValues()
        self._own = bool(job.hooks.pre_train)
        self._runner = HookRunner(
            hooks,
            paths=paths,
            attempt=attempt,
            environment=os.environ,
            job_environment=job.env,
            python=python_argv(),
            nodes=job.launch.nodes,
            say=view.say,
            status=view.status,
        )

    def before(self) -> Prepared:
        """Run pre_launch, then pre_train for this node; a hook that fails, or a signal, ends the launch."""
        phases: tuple[Phase, ...] = ("pre_launch", "pre_train")
        for phase in phases:
            end = self._run(phase)
            refusal = refusal_of(end, phase, self._paths)
            if refusal is not None:
                self._show(end.failed)
                return Prepared(refusal=refusal)
        # With hooks of their own, other nodes find all variables of hooks themselves, so that theirs can win.
        return Prepared(variables=tuple(hook_variables(self._values, own=self._own)))

    def after(self, result: LaunchResult, status: str, step: int) -> LaunchResult:
        """Run post_train; the exit code stays, and the message tells of the hooks that failed."""
        outcome = Outcome(status=status, exit_code=int(result.exit_code), step=step)
        try:
            end = self._run("post_train", outcome)
        except OSError as error:  # a full disk must not keep the end of the ranks from the user
            return replace(result, message=f"{result.message}; post_train hooks could not run: {error}")
        self._show(end.failed)
        told = "".join(f"; {hook.describe()}" for hook in end.failed)
        return replace(result, message=result.message + told, signal=result.signal or end.signal)

    def _run(self, phase: Phase, outcome: Outcome | None = None) -> PhaseEnd:
        end = self._runner.run(phase, self._values, outcome)
        self._values = end.values
        return end

    def _show(self, failed: Sequence[HookEnd]) -> None:
        for hook in failed:
            for line in hook.tail[-_LAST_LINES:]:
                self._view.say(f"  {line}")
