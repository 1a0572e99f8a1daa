"""`task=train` for many points: here one after the other, or in Slurm all at once. One bad point stops no other.

What came of each point is in the sweep's book. Told to stop (Ctrl-C, SIGTERM), the point at work saves, no other one is
started, and the book says which were not.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from primus_hydra.config.composed import Composed
from primus_hydra.config.sweep import SkippedPoint
from primus_hydra.errors import ExitCode, Problem, UserError
from primus_hydra.run.paths import RunPaths
from primus_hydra.tasks.contract import PointEnd, SweepStopped
from primus_hydra.tasks.sweep_book import SweepBook, unquoted
from primus_hydra.ui.errors import show_error
from primus_hydra.ui.screen import show

RunPoint = Callable[[Composed], tuple[int, int | None]]
"""Trains one point here; returns its exit code, and the code of a stop that somebody asked for meanwhile."""


class TrainSweep:
    """A sweep in batches of points; the basic sweeper has one batch, others have many."""

    def __init__(self, run_point: RunPoint) -> None:
        self._run_point = run_point
        self._book = SweepBook()
        self._codes: list[int] = []

    def run_all(self, points: Sequence[Composed], skipped: Sequence[SkippedPoint]) -> int:
        """Run all points, say what came of them, and return the highest exit code."""
        runs = [self._book.plan(point) for point in points]
        for one in skipped:
            self._skip(one)
        with contextlib.suppress(SweepStopped):
            self._run(points, runs)
        return self.close()

    def run(self, points: Sequence[Composed | SkippedPoint | UserError]) -> list[PointEnd]:
        """Run a batch that a sweeper chose; raises UserError if its points are not waited for."""
        sound = [point for point in points if isinstance(point, Composed)]
        _refuse_unwaited(sound)
        ends = {id(point): self._unfit(point) for point in points if not isinstance(point, Composed)}
        runs = [self._book.plan(point) for point in sound]
        self._run(sound, runs)
        ends |= {id(point): self._book.end_of(paths) for point, paths in zip(sound, runs, strict=True)}
        return [ends[id(point)] for point in points]

    def _unfit(self, point: SkippedPoint | UserError) -> PointEnd:
        """Note a point that cannot be run; its layout may be illegal, which is no mistake of the user's."""
        if isinstance(point, UserError):
            show_error(point)
            self._codes.append(int(point.exit_code))
            return PointEnd(problem=str(point))
        return PointEnd(problem=self._skip(point))

    def _skip(self, one: SkippedPoint) -> str:
        reason = "; ".join(problem.what for problem in one.problems)
        self._book.plan(one.point, "skipped", reason)
        return reason

    def close(self) -> int:
        """Print the table, and return the highest exit code."""
        self._book.show()
        return max(self._codes, default=int(ExitCode.DONE))

    def _run(self, planned: Sequence[Composed], places: Sequence[RunPaths]) -> None:
        # The same point may come twice, from a list or from a sweeper: it is one run.
        once = {paths.root: (point, paths) for point, paths in zip(planned, places, strict=True)}
        points, runs = [point for point, _ in once.values()], [paths for _, paths in once.values()]
        self._book.write()
        slurm = bool(points) and points[0].launcher == "submitit"
        told = self._submit(points, runs) if slurm else self._run_here(points, runs)
        self._codes += [self._book.code_of(paths) for paths in runs]
        if told is not None:
            self._codes.append(told)
            raise SweepStopped

    def _submit(self, points: Sequence[Composed], runs: Sequence[RunPaths]) -> int | None:
        from primus_hydra.tasks.submit import submit_points  # only here: submitit is slow to import

        return submit_points(points, runs, self._book)

    def _run_here(self, points: Sequence[Composed], runs: Sequence[RunPaths]) -> int | None:
        told, begun = None, 0
        try:
            with _stops():
                for begun, (point, paths) in enumerate(zip(points, runs, strict=True), start=1):
                    show(f"point {begun} of {len(points)}: {', '.join(map(unquoted, point.swept))}\n", sys.stdout)
                    told = self._point(point, paths)
                    if told is not None:
                        break
                    self._book.write()
        except _StopError as stop:
            told = stop.exit_code
            if begun:
                self._book.look(runs[begun - 1])
        if told is not None and begun < len(points):
            left = f"{len(points) - begun} of {len(points)} points were not started"
            show(f"the sweep was stopped: {left}\n", sys.stdout)
        return told

    def _point(self, point: Composed, paths: RunPaths) -> int | None:
        try:
            code, told = self._run_point(point)
        except Exception as error:  # of this point alone; its traceback is kept
            self._book.fail(paths, error)
            return None
        self._book.look(paths, exit_code=code)
        return told


def _refuse_unwaited(points: Sequence[Composed]) -> None:
    if any(point.launcher == "submitit" and not point.job.launch.wait for point in points):
        what = "a sweeper chooses its next points by the results of the last ones, and has to wait for them"
        raise UserError(Problem(key="launch.wait", what=what, hint="leave launch.wait=false out"))


class _StopError(BaseException):
    """A signal asked for a stop while no ranks were at work."""

    def __init__(self, number: int) -> None:
        super().__init__(f"told to stop by {signal.Signals(number).name}")
        self.exit_code = int(ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.REQUEUE)


@contextlib.contextmanager
def _stops() -> Iterator[None]:
    """Let signals end what is done for a point; while ranks are at work, their launcher takes them."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _StopError(number)

    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets only the main thread set handlers: then the caller's decide
        return
    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
