"""The end of an attempt: its state, its plot, and the closing lines."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from primus_hydra.config.composed import Composed
from primus_hydra.errors import ExitCode, PrimusError
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.run.checkpoints import complete_steps
from primus_hydra.run.history import EndWord
from primus_hydra.run.metrics import read_metrics
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import RunState, read_state, write_state
from primus_hydra.runtime.trackers.status import read_tracker_status
from primus_hydra.ui.closing import Closing, Ending, Failure, losses_of, show_closing, tail_of
from primus_hydra.ui.screen import show

logger = logging.getLogger(__name__)

_STATUS: dict[int, EndWord] = {
    ExitCode.DONE: "finished",
    ExitCode.REQUEUE: "saved",
    ExitCode.INTERRUPTED: "interrupted",
}
_ENDING: dict[int, Ending] = {
    ExitCode.DONE: "done",
    ExitCode.REQUEUE: "saved",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.HANG: "hung",
}


def status_of(result: LaunchResult) -> EndWord:
    """Return the state of the run after a launch."""
    return _STATUS.get(result.exit_code, "failed")


def broken_launch(error: BaseException) -> LaunchResult:
    """Return the end of an attempt whose ranks could not be started or watched."""
    code = error.exit_code if isinstance(error, PrimusError) else ExitCode.BUG
    words = (str(error) or type(error).__name__).partition("\n")[0]
    return LaunchResult(exit_code=int(code), message=f"the launch failed: {words}")


def note_last_state(paths: RunPaths, state: RunState, say: Callable[[str], None]) -> None:
    """Write the state of a run that has ended; `say` is told if the disk does not take it.

    That is no reason to keep how the ranks ended from the user.
    """
    try:
        write_state(paths.state, state)
    except OSError as error:
        say(f"WARNING: {paths.state} still says that the run is at work: {error.strerror or error}")


def show_end(paths: RunPaths, composed: Composed, result: LaunchResult, *, step: int, seconds: float) -> None:
    """Draw the plot and print the closing lines of an attempt that ended now."""
    ending = _ENDING.get(result.exit_code, "failed")
    failure = None if ending != "failed" else _failure(result)
    show_closing(_closing(paths, composed, ending, step=step, seconds=seconds, failure=failure))
    if failure is None and ending != "done":
        show(f"  {result.message}\n" + (f"  log:          {result.log}\n" if result.log else ""), sys.stdout)


def show_finished_before(paths: RunPaths, composed: Composed) -> None:
    """Print the closing lines of a run that was finished before this command."""
    state = read_state(paths.state)
    show_closing(_closing(paths, composed, "finished_before", step=state.step if state else 0))


def command_line(overrides: Sequence[str]) -> list[str]:
    """Return the command for overrides as one would type it, program first."""
    program = Path(sys.argv[0])
    by_module = program.name in ("__main__.py", "node.py")
    words = ["python", "-m", "primus_hydra"] if by_module else [program.name]
    return [*words, *overrides]


def replaced(overrides: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return overrides with other values for some keys."""
    kept = [word for word in overrides if word.lstrip("+").partition("=")[0] not in values]
    return [*kept, *(f"{key}={value}" for key, value in values.items())]


def _closing(
    paths: RunPaths,
    composed: Composed,
    ending: Ending,
    *,
    step: int,
    seconds: float | None = None,
    failure: Failure | None = None,
) -> Closing:
    rows = read_metrics(paths.metrics)
    first, last, validation = losses_of(rows)
    saved = complete_steps(paths)
    trackers = read_tracker_status(paths.trackers)
    training = composed.job.training
    return Closing(
        ending=ending,
        name=paths.root.name,
        root=paths.root,
        step=step,
        steps=training.steps,
        command=command_of_run(paths, composed),
        first_loss=first,
        last_loss=last,
        validation_loss=validation,
        seconds=seconds,
        tokens=step * training.global_batch_size * training.seq_length,
        plot=_plot(paths) if rows else None,
        checkpoint=paths.checkpoint(saved[-1]) if saved else None,
        export=paths.export if paths.export.exists() else None,
        trackers={name: said["look"] for name, said in trackers.items() if "look" in said},
        tracker_problems={name: said["problem"] for name, said in trackers.items() if "problem" in said},
        failure=failure,
    )


def command_of_run(paths: RunPaths, composed: Composed) -> list[str]:
    """Return the command for the run alone, which is the one that was typed unless a sweep made it."""
    place = {"run.dir": str(paths.root.parent), "run.name": paths.root.name}
    return command_line(replaced(composed.overrides, place) if composed.swept else composed.overrides)


def _plot(paths: RunPaths) -> Path | None:
    # Only now: its library takes most of a second to import, which no start should wait for.
    from primus_hydra.ui.plot import plot_loss

    try:
        return plot_loss(paths.metrics, paths.plots / "loss.png", paths.root.name)
    except OSError as error:
        logger.warning("the loss plot could not be written: %s", error)
        return None


def _failure(result: LaunchResult) -> Failure | None:
    if result.failed_rank is None or result.log is None:
        return None
    said = next((outcome for outcome in result.outcomes if outcome.rank == result.failed_rank), None)
    return Failure(
        rank=result.failed_rank,
        exit_code=result.exit_code,
        log=result.log,
        message=said.message if said else result.message,
        # What a person can mend is said whole; the log before it is only in the way.
        tail=() if result.exit_code in (ExitCode.USER, ExitCode.HOST) else tail_of(result.log),
    )
