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
from typing import TYPE_CHECKING, ClassVar, Literal, TypedDict

from primus_hydra.config.build import dump_job
from primus_hydra.config.composed import Composed
from primus_hydra.config.provenance import Source
from primus_hydra.data.prepare import prepare_data
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import ExitCode
from primus_hydra.launch.cluster.meeting import current_host
from primus_hydra.launch.environment import EnvVariable
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
from primus_hydra.run.unsaved import read_unsaved
from primus_hydra.tasks.attempt_hooks import AttemptHooks, check_hooks
from primus_hydra.tasks.contract import OpenSweep, Task
from primus_hydra.tasks.disk_room import refuse_too_little_room
from primus_hydra.tasks.ending import broken_launch, note_last_state, show_end, show_finished_before, status_of
from primus_hydra.tasks.preparation import is_finished, plan_attempt
from primus_hydra.tasks.readiness import Ready, check_ready
from primus_hydra.tasks.run_folder import (
    next_attempt,
    refuse_other_text,
    refuse_other_training,
    refuse_too_few_steps,
    run_paths,
)
from primus_hydra.tasks.sweep import TrainSweep
from primus_hydra.ui.progress import ProgressView

if TYPE_CHECKING:
    from primus_hydra.config.sweep import SkippedPoint

_PAST_LOCK_S = 180.0
"""How long a network file system may keep the lock of a machine that died (NFS: 90 s)."""
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
    slurm: ClassVar[Literal["submits", "ignores"] | None] = "submits"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Training has no options of its own: they are the rest of the configuration."""

    def run(self, composed: Composed) -> int:
        """Train, and return the exit code of the attempt."""
        if composed.launcher == "submitit":
            from primus_hydra.tasks.submit import submit_run  # only here: submitit is slow to import

            return submit_run(composed)
        ready = check_ready(composed.job, os.environ)
        paths = run_paths(composed)
        refuse_other_training(paths, composed.tree, composed.job.resume)
        if is_finished(paths, composed.job):
            show_finished_before(paths, composed)
            return int(ExitCode.DONE)
        refuse_too_little_room(paths, composed.job)
        check_hooks(composed.job)
        with ProgressView(composed.job.training.steps) as view:
            for note in _notes(composed):
                view.say(note)
            data = prepare_data(composed.job, report=view.status)
            with run_storage(paths.root):
                paths.root.mkdir(parents=True, exist_ok=True)
                with _lock(paths):
                    return self._attempt(_Attempt(composed, ready, paths, view), data)

    def run_points(self, points: Sequence[Composed]) -> int:
        """Train the points of a sweep."""
        return self.run_sweep(points, ())

    def run_sweep(self, points: Sequence[Composed], skipped: Sequence[SkippedPoint]) -> int:
        """Train every point, and say at the end what came of each; a job without a swept key is an ordinary run."""
        if len(points) == 1 and not points[0].swept:
            return self.run(points[0])
        return TrainSweep(self._run_point).run_all(points, skipped)

    def open_sweep(self) -> OpenSweep:
        """Begin a sweep whose points a sweeper chooses."""
        return TrainSweep(self._run_point)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._stop_code: int | None = None

    def _run_point(self, composed: Composed) -> tuple[int, int | None]:
        self._stop_code = None
        return self.run(composed), self._stop_code

    def _attempt(self, attempt: _Attempt, data: PreparedData) -> int:
        code = attempt.run(data)
        if attempt.told_to_stop is not None:
            interrupted = attempt.told_to_stop == signal.SIGINT
            self._stop_code = int(ExitCode.INTERRUPTED if interrupted else ExitCode.REQUEUE)
        return code


def _lock(paths: RunPaths) -> RunLock:
    """Return the lock; where a scheduler started the job again, the one before may seem to hold it for a while."""
    host = current_host()
    if host is None:
        return RunLock(paths.lock)
    return RunLock(paths.lock, wait_s=_PAST_LOCK_S if host.node.restart else 0.0, job=host.node.run_id)


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
        self.hooks = AttemptHooks(composed.job, paths, self.number, view)
        self.started_at = time.time()
        self.started_s = time.monotonic()
        self.told_to_stop: int | None = None

    def run(self, data: PreparedData) -> int:
        job = self.composed.job
        self.view.say(f"run {self.paths.root.name}, attempt {self.number}")
        refuse_other_text(self.paths, self.number, data, job.resume)
        step = self._choose_checkpoint()
        plan = self._plan(data, step)
        self._write(plan)
        self._note_running(step or 0)
        try:
            result = self._run_ranks(data, step)
        except BaseException as error:  # the error is shown by whoever gets it; the run must not seem to be at work
            self._note_result(broken_launch(error), "failed", step or 0)
            raise
        return self._finish(result, step or 0)

    def _run_ranks(self, data: PreparedData, step: int | None) -> LaunchResult:
        before = self.hooks.before()
        if before.refusal is not None:
            return before.refusal
        plan = self._plan(data, step, before.variables)
        self.view.status(f"starting {plan.spec.world_size} rank(s) on {self.composed.job.platform.name}")
        return self._launch(plan)

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

    def _plan(self, data: PreparedData, step: int | None, hooks: Sequence[EnvVariable] = ()) -> LaunchPlan:
        return plan_attempt(
            self.composed, self.ready, self.paths, attempt=self.number, data=data, resume_from=step, hooks=hooks
        )

    def _write(self, plan: LaunchPlan) -> None:
        plan.spec.attempt_paths.root.mkdir(parents=True, exist_ok=True)
        write_command(plan.spec.attempt_paths.command, _command(self.composed))
        write_text(self.paths.config, dump_job(self.composed.job))
        write_json(self.paths.provenance, _sources(self.composed.provenance))

    def _launch(self, plan: LaunchPlan) -> LaunchResult:
        publication, host = current_host() or current_publication(), current_host()
        tail = MetricsTail(self.paths.metrics, skip_existing=True)
        watching = _Watching(self.view, tail, self.paths.attempt(self.number).unsaved, self._note_step)
        result = launch(
            plan,
            watching,
            published=publication.spec if publication else None,
            elsewhere=host,
        )
        watching.tell_unsaved()
        return host.gather(result) if host else result

    def _note_running(self, step: int) -> None:
        self._note(RunState(status="running", step=step, **self._facts()))

    def _note_step(self, step: int) -> None:
        with contextlib.suppress(OSError):  # a disk that is full for a while must not end the ranks
            self._note_running(step)

    def _finish(self, result: LaunchResult, start: int) -> int:
        self.view.close()
        step = max(start, result.step or 0, *complete_steps(self.paths)[-1:])
        status = status_of(result)
        self._note_result(result, status, step)
        ranks_end, result = result, self.hooks.after(result, status, step)
        if result.message != ranks_end.message:
            self._note_result(result, status, step)
        self.told_to_stop = result.signal
        account = goodput(read_attempts(self.paths), read_metrics(self.paths.metrics))
        if account is not None:
            with contextlib.suppress(OSError):  # the end of a run on a full disk is told all the same
                write_json(self.paths.goodput, account.to_json())
            self.view.say(account.describe())
        show_end(self.paths, self.composed, result, step=step, seconds=time.monotonic() - self.started_s)
        return result.exit_code

    def _note_result(self, result: LaunchResult, status: EndWord, step: int) -> None:
        state = RunState(status=status, step=step, exit_code=result.exit_code, message=result.message, **self._facts())
        note_last_state(self.paths, state, self.view.say)
        self._note_end(result, status, step)

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
    """Feeds the progress view with what the ranks log; now and then notes the step, and tells of skipped saves."""

    def __init__(self, view: ProgressView, tail: MetricsTail, unsaved: Path, note: Callable[[int], None]) -> None:
        self._view = view
        self._tail = tail
        self._unsaved = unsaved
        self._skipping = False
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
            self.tell_unsaved()

    def tell_unsaved(self) -> None:
        """Say that saves are skipped, or are not any more: once for each change."""
        note = read_unsaved(self._unsaved)
        if (note is not None) != self._skipping:
            self._skipping = note is not None
            self._view.say(f"WARNING: {note.describe()}" if note else "checkpoints are saved again")

    def say(self, text: str) -> None:
        """Show a line."""
        self._view.say(text)


def _set_aside_all(paths: RunPaths, attempt: int) -> None:
    """Keep the checkpoints and metrics of a run that starts from nothing out of the way of its new ones."""
    for path in (paths.checkpoints, paths.metrics):
        if path.exists():
            path.rename(path.with_name(f"{path.stem}.before-attempt-{attempt}{path.suffix}"))
