"""`task=train`: start the run, or go on with it.

Everything that can be refused is refused before the run directory exists. Then one attempt: prepare the data, choose
the checkpoint, write what the ranks need, start them, show how they do, and say at the end what came out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, TypedDict

from primus_hydra.config.build import dump_job
from primus_hydra.config.composed import Composed
from primus_hydra.config.provenance import Source
from primus_hydra.data.prepare import prepare_data
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import ExitCode
from primus_hydra.launch.local import launch
from primus_hydra.launch.outer import current_publication
from primus_hydra.launch.plan import LaunchPlan
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.run.atomic import write_json, write_text
from primus_hydra.run.checkpoints import complete_steps, pick_checkpoint
from primus_hydra.run.lock import RunLock
from primus_hydra.run.metrics import MetricsTail
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import RunState, write_state
from primus_hydra.tasks.contract import Task
from primus_hydra.tasks.ending import show_end, show_finished_before, status_of
from primus_hydra.tasks.preparation import is_finished, plan_attempt
from primus_hydra.tasks.readiness import Ready, check_ready
from primus_hydra.tasks.run_folder import next_attempt, refuse_other_text, refuse_other_training, run_paths
from primus_hydra.ui.progress import ProgressView


class _Facts(TypedDict):
    """What every state of an attempt says."""

    steps: int
    attempt: int
    started_at: float
    updated_at: float


class Train(Task):
    """Train the composed job."""

    name: ClassVar[str] = "train"
    needs_host: ClassVar[bool] = True

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Training has no options of its own: they are the rest of the configuration."""

    def run(self, composed: Composed) -> int:
        """Train, and return the exit code of the attempt."""
        ready = check_ready(composed.job, os.environ)
        paths = run_paths(composed)
        refuse_other_training(paths, composed.tree, composed.job.resume)
        if is_finished(paths, composed.job):
            show_finished_before(paths, composed)
            return int(ExitCode.DONE)
        paths.root.mkdir(parents=True, exist_ok=True)
        with RunLock(paths.lock), ProgressView(composed.job.training.steps) as view:
            return _Attempt(composed, ready, paths, view).run()


class _Attempt:
    """One attempt of a run whose lock we hold."""

    def __init__(self, composed: Composed, ready: Ready, paths: RunPaths, view: ProgressView) -> None:
        self.composed = composed
        self.ready = ready
        self.paths = paths
        self.view = view
        self.number = next_attempt(paths)
        self.started_at = time.time()

    def run(self) -> int:
        job = self.composed.job
        for note in self.composed.notes:
            self.view.say(note)
        self.view.say(f"run {self.paths.root.name}, attempt {self.number}")
        data = prepare_data(job, report=self.view.status)
        refuse_other_text(self.paths, self.number, data, job.resume)
        step = self._choose_checkpoint()
        plan = self._plan(data, step)
        self._write(plan)
        self._note(RunState(status="running", step=step or 0, **self._facts()))
        self.view.status(f"starting {plan.spec.world_size} rank(s) on {job.platform.name}")
        result = self._launch(plan)
        return self._finish(result, step or 0)

    def _choose_checkpoint(self) -> int | None:
        if self.composed.job.resume == "never":
            _set_aside_all(self.paths, self.number)
        choice = pick_checkpoint(self.paths, self.composed.job.resume)
        for damaged in choice.set_aside:
            self.view.say(f"a checkpoint was set aside ({damaged.path.name}): {damaged.reason}")
        if choice.step is not None:
            self.view.say(f"going on from the checkpoint at step {choice.step}")
        return choice.step

    def _plan(self, data: PreparedData, step: int | None) -> LaunchPlan:
        return plan_attempt(self.composed, self.ready, self.paths, attempt=self.number, data=data, resume_from=step)

    def _write(self, plan: LaunchPlan) -> None:
        plan.spec.attempt_paths.root.mkdir(parents=True, exist_ok=True)
        write_text(self.paths.config, dump_job(self.composed.job))
        write_json(self.paths.provenance, _sources(self.composed.provenance))

    def _launch(self, plan: LaunchPlan) -> LaunchResult:
        publication = current_publication()
        tail = MetricsTail(self.paths.metrics, skip_existing=True)
        return launch(plan, _Watching(self.view, tail), published=publication.spec if publication else None)

    def _finish(self, result: LaunchResult, start: int) -> int:
        self.view.close()
        step = max(start, result.step or 0, *complete_steps(self.paths)[-1:])
        status = status_of(result)
        self._note(
            RunState(status=status, step=step, exit_code=result.exit_code, message=result.message, **self._facts())
        )
        show_end(self.paths, self.composed, result, step=step, seconds=time.time() - self.started_at)
        return result.exit_code

    def _facts(self) -> _Facts:
        return {
            "steps": self.composed.job.training.steps,
            "attempt": self.number,
            "started_at": self.started_at,
            "updated_at": time.time(),
        }

    def _note(self, state: RunState) -> None:
        write_state(self.paths.state, state)


def _sources(provenance: Mapping[str, object]) -> dict[str, object]:
    """Return for each leaf what set it: kind, text, and file and line where it was a file."""
    return {leaf: asdict(source) if isinstance(source, Source) else str(source) for leaf, source in provenance.items()}


class _Watching:
    """Feeds the progress view with what the ranks log."""

    def __init__(self, view: ProgressView, tail: MetricsTail) -> None:
        self._view = view
        self._tail = tail

    def tick(self) -> None:
        """Show new steps."""
        self._view.feed(self._tail.poll())


def _set_aside_all(paths: RunPaths, attempt: int) -> None:
    """Keep the checkpoints of a run that starts from nothing out of the way of its new ones."""
    if paths.checkpoints.exists():
        paths.checkpoints.rename(paths.checkpoints.with_name(f"checkpoints.before-attempt-{attempt}"))
