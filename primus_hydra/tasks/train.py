"""`task=train`: start the run, or go on with it.

Everything that can be refused is refused before the run directory exists. Then one attempt: prepare the data, choose
the checkpoint, write what the ranks need, start them, show how they do, and say at the end what came out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
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
from primus_hydra.patching.selection import ENVIRONMENT_NAME as PATCHES_VARIABLE
from primus_hydra.run.atomic import write_json, write_text
from primus_hydra.run.checkpoints import complete_steps, pick_checkpoint
from primus_hydra.run.goodput import goodput, read_attempts
from primus_hydra.run.history import AttemptEnd, EndWord, write_end
from primus_hydra.run.lock import RunLock
from primus_hydra.run.metrics import MetricsTail, read_metrics, step_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.retention import sweep_retired
from primus_hydra.run.saved import RunCommand, write_command
from primus_hydra.run.state import RunState, write_state
from primus_hydra.run.storage import run_storage
from primus_hydra.tasks.contract import Task
from primus_hydra.tasks.ending import show_end, show_finished_before, status_of
from primus_hydra.tasks.preparation import is_finished, plan_attempt
from primus_hydra.tasks.readiness import Ready, check_ready
from primus_hydra.tasks.run_folder import (
    next_attempt,
    refuse_other_text,
    refuse_other_training,
    refuse_too_few_steps,
    run_paths,
)
from primus_hydra.ui.progress import ProgressView

STATE_EVERY_S = 5.0
"""How often the step in the run's state is renewed while ranks run."""


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
        with ProgressView(composed.job.training.steps) as view:
            for note in _notes(composed):
                view.say(note)
            data = prepare_data(composed.job, report=view.status)
            with run_storage(paths.root):
                paths.root.mkdir(parents=True, exist_ok=True)
                with RunLock(paths.lock):
                    return self._attempt(_Attempt(composed, ready, paths, view), data)

    def run_points(self, points: Sequence[Composed]) -> int:
        """Train one point after the other; a stop that is asked for ends the sweep, whatever the point made of it."""
        codes: list[int] = []
        for number, point in enumerate(points, start=1):
            codes.append(self.run(point))
            if self._stop_code is not None:
                if number < len(points):
                    print(f"the sweep was stopped: {len(points) - number} of {len(points)} points were not started")
                return max(*codes, self._stop_code)
        return max(codes, default=int(ExitCode.DONE))

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._stop_code: int | None = None

    def _attempt(self, attempt: _Attempt, data: PreparedData) -> int:
        code = attempt.run(data)
        if attempt.told_to_stop is not None:
            interrupted = attempt.told_to_stop == signal.SIGINT
            self._stop_code = int(ExitCode.INTERRUPTED if interrupted else ExitCode.REQUEUE)
        return code


def _notes(composed: Composed) -> list[str]:
    """Return what the user should know before anything starts."""
    chosen = os.environ.get(PATCHES_VARIABLE, "")
    patches = (
        [] if chosen in ("", "all") else [f"{PATCHES_VARIABLE}={chosen} leaves out patches that this job may need"]
    )
    return [*composed.notes, *patches]


class _Attempt:
    """One attempt of a run whose lock we hold."""

    def __init__(self, composed: Composed, ready: Ready, paths: RunPaths, view: ProgressView) -> None:
        self.composed = composed
        self.ready = ready
        self.paths = paths
        self.view = view
        self.number = next_attempt(paths)
        self.started_at = time.time()
        self.told_to_stop: int | None = None

    def run(self, data: PreparedData) -> int:
        job = self.composed.job
        self.view.say(f"run {self.paths.root.name}, attempt {self.number}")
        refuse_other_text(self.paths, self.number, data, job.resume)
        step = self._choose_checkpoint()
        plan = self._plan(data, step)
        self._write(plan)
        self._note_running(step or 0)
        self.view.status(f"starting {plan.spec.world_size} rank(s) on {job.platform.name}")
        result = self._launch(plan)
        return self._finish(result, step or 0)

    def _choose_checkpoint(self) -> int | None:
        sweep_retired(self.paths)
        if self.composed.job.resume == "never":
            _set_aside_all(self.paths, self.number)
        choice = pick_checkpoint(self.paths, self.composed.job.resume)
        refuse_too_few_steps(self.paths, choice.step, self.composed.job.training.steps)
        for damaged in choice.set_aside:
            self.view.say(f"a checkpoint was set aside ({damaged.path.name}): {damaged.reason}")
        if choice.step is not None:
            self.view.say(f"going on from the checkpoint at step {choice.step}")
        return choice.step

    def _plan(self, data: PreparedData, step: int | None) -> LaunchPlan:
        return plan_attempt(self.composed, self.ready, self.paths, attempt=self.number, data=data, resume_from=step)

    def _write(self, plan: LaunchPlan) -> None:
        plan.spec.attempt_paths.root.mkdir(parents=True, exist_ok=True)
        write_command(plan.spec.attempt_paths.command, _command(self.composed))
        write_text(self.paths.config, dump_job(self.composed.job))
        write_json(self.paths.provenance, _sources(self.composed.provenance))

    def _launch(self, plan: LaunchPlan) -> LaunchResult:
        publication = current_publication()
        tail = MetricsTail(self.paths.metrics, skip_existing=True)
        watching = _Watching(self.view, tail, self._note_running)
        return launch(plan, watching, published=publication.spec if publication else None)

    def _note_running(self, step: int) -> None:
        self._note(RunState(status="running", step=step, **self._facts()))

    def _finish(self, result: LaunchResult, start: int) -> int:
        self.told_to_stop = result.signal
        self.view.close()
        step = max(start, result.step or 0, *complete_steps(self.paths)[-1:])
        status = status_of(result)
        self._note(
            RunState(status=status, step=step, exit_code=result.exit_code, message=result.message, **self._facts())
        )
        self._note_end(result, status, step)
        account = goodput(read_attempts(self.paths), read_metrics(self.paths.metrics))
        if account is not None:
            with contextlib.suppress(OSError):  # the end of a run on a full disk is told all the same
                write_json(self.paths.goodput, account.to_json())
            self.view.say(account.describe())
        show_end(self.paths, self.composed, result, step=step, seconds=time.time() - self.started_at)
        return result.exit_code

    def _note_end(self, result: LaunchResult, status: EndWord, step: int) -> None:
        end = AttemptEnd(
            status=status,
            exit_code=result.exit_code,
            message=result.message,
            step=step,
            restarts=result.restarts,
            time=time.time(),
            failed_rank=result.failed_rank,
            signal=result.signal,
        )
        with contextlib.suppress(OSError):  # the state has told it already
            write_end(self.paths.attempt(self.number).ended, end)

    def _facts(self) -> _Facts:
        return {
            "steps": self.composed.job.training.steps,
            "attempt": self.number,
            "started_at": self.started_at,
            "updated_at": time.time(),
        }

    def _note(self, state: RunState) -> None:
        write_state(self.paths.state, state)


def _command(composed: Composed) -> RunCommand:
    return RunCommand(
        argv=tuple(sys.orig_argv),
        overrides=tuple(composed.overrides),
        swept=tuple(composed.swept),
        folder=str(Path.cwd()),
    )


def _sources(provenance: Mapping[str, object]) -> dict[str, object]:
    """Return for each leaf what set it: kind, text, and file and line where it was a file."""
    return {leaf: asdict(source) if isinstance(source, Source) else str(source) for leaf, source in provenance.items()}


class _Watching:
    """Feeds the progress view with what the ranks log, and notes the step in the run's state now and then."""

    def __init__(self, view: ProgressView, tail: MetricsTail, note: Callable[[int], None]) -> None:
        self._view = view
        self._tail = tail
        self._note = note
        self._noted_at = time.monotonic()

    def tick(self) -> None:
        """Show new steps."""
        rows = self._tail.poll()
        self._view.feed(rows)
        step = step_of(rows[-1]) if rows else None
        if step is not None and time.monotonic() - self._noted_at > STATE_EVERY_S:
            self._noted_at = time.monotonic()
            self._note(step)

    def say(self, text: str) -> None:
        """Show a line."""
        self._view.say(text)


def _set_aside_all(paths: RunPaths, attempt: int) -> None:
    """Keep the checkpoints and metrics of a run that starts from nothing out of the way of its new ones."""
    for path in (paths.checkpoints, paths.metrics):
        if path.exists():
            path.rename(path.with_name(f"{path.stem}.before-attempt-{attempt}{path.suffix}"))
