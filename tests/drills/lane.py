"""Runs cells of the table: one fault with one backend, from the first command to the proof that nothing was lost."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.run.history import read_end
from primus_hydra.run.metrics import Row, number, read_metrics, step_of
from primus_hydra.runtime.pulse import pulse_folder
from tests.drills import injections, proof
from tests.drills.cluster_scene import ClusterScene
from tests.drills.fault import BACKENDS, Expect, Fault
from tests.drills.proof import Leg
from tests.drills.scene import Act, DrillError, Scene, Typed
from tests.slurm.cluster import Cluster

LAST_BREATH_S = 5.0
"""How long the kernel may take to end what has lost its parent."""
_STOP_AT = Act(name="stop", place="data", step=11)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one cell: `seen` is what the user saw, `repeated` the steps that were done again."""

    fault: str
    backend: str
    codes: tuple[int, ...]
    words: tuple[str, ...]
    seen: str
    repeated: int
    seconds: float
    complaints: tuple[str, ...]

    @property
    def held(self) -> bool:
        """Whether everything was as it must be."""
        return not self.complaints


class Lane:
    """Drills in one folder; what the cells of a backend share is made once, when the first of them asks.

    `cluster` gives the Slurm for those that need one; they take it in turn.
    """

    def __init__(self, folder: Path, cluster: Callable[[], Cluster] | None = None) -> None:
        self._folder = folder
        self._cluster = cluster
        self._cluster_lock = threading.Lock()
        self._locks = {backend: threading.Lock() for backend in BACKENDS}
        self._straight: dict[str, dict[int, float]] = {}
        self._stopped: dict[str, Path] = {}

    def straight(self, backend: str) -> dict[int, float]:
        """Return the losses of an undisturbed run; raises DrillError if there is none."""
        with self._locks[backend]:
            if backend not in self._straight:
                self._straight[backend] = _run_straight(self._folder / f"straight-{backend}", backend)
            return self._straight[backend]

    def stopped(self, backend: str) -> Path:
        """Return the folder of a run that was stopped in step 11; raises DrillError if it was not."""
        with self._locks[backend]:
            if backend not in self._stopped:
                self._stopped[backend] = _run_stopped(self._folder / f"stopped-{backend}", backend)
            return self._stopped[backend]

    def drill(self, fault: Fault, backend: str) -> Result:
        """Run one cell; a drill that could not be done is a complaint, too."""
        straight = self.straight(backend)
        with contextlib.ExitStack() as leaving:
            scene = leaving.enter_context(self._scene(fault, backend))
            cell = _Cell(fault, scene)
            with cell.complaining():
                cell.run(straight)
            with cell.complaining():
                leaving.close()
        result = cell.result()
        if result.held:
            shutil.rmtree(scene.folder)
        return result

    @contextlib.contextmanager
    def _scene(self, fault: Fault, backend: str) -> Iterator[Scene]:
        folder = self._folder / f"{fault.name}-{backend}"
        if not fault.on_slurm:
            with Scene(folder, backend, lambda: self.stopped(backend)) as scene:
                yield scene
        elif self._cluster is None:
            raise DrillError("there is no Slurm here")
        else:
            with self._cluster_lock, ClusterScene(folder, backend, self._cluster(), nodes=fault.nodes) as scene:
                yield scene


class _Cell:
    """One drill on its scene."""

    def __init__(self, fault: Fault, scene: Scene) -> None:
        self._fault = fault
        self._scene = scene
        self._legs: list[Leg] = []
        self._rows: list[Row] = []
        self._aside: Typed | None = None
        self.complaints: list[str] = []

    @contextlib.contextmanager
    def complaining(self) -> Iterator[None]:
        """Note what could not be done, instead of ending all other drills with it."""
        try:
            yield
        except (DrillError, AssertionError) as error:
            self.complaints.append(str(error))

    def run(self, straight: dict[int, float]) -> None:
        """Make the fault, see it end, go on where the run did not, and prove the result."""
        fault, scene = self._fault, self._scene
        scene.arrange(fault.acts)
        if fault.before is not None:
            fault.before(scene)
        self._leg(fault.first, disturbed=True)
        if fault.mend is not None:
            fault.mend(scene)
        if fault.second is not None:
            self._leg(fault.second, disturbed=False)
        self._rows = read_metrics(scene.paths.metrics)
        self.complaints += self._last_complaints(straight)

    def result(self) -> Result:
        """Say what came out."""
        return Result(
            fault=self._fault.name,
            backend=self._scene.backend,
            codes=tuple(leg.typed.code for leg in self._legs),
            words=tuple(leg.word or "none" for leg in self._legs),
            seen=self._seen(),
            repeated=proof.repeated_steps(self._rows),
            seconds=sum(leg.typed.seconds for leg in self._legs),
            complaints=tuple(self.complaints),
        )

    def _leg(self, expect: Expect, *, disturbed: bool) -> None:
        fault, scene = self._fault, self._scene
        before = len(scene.paths.attempt_numbers())
        scene.command = command = scene.type(fault.overrides, pipe=fault.pipe)
        if disturbed and fault.inject is not None:
            self._aside = fault.inject(scene)
        leg = proof.look(scene.paths, command.wait(), scene.word)
        self.complaints += self._left_complaints()
        self.complaints += scene.complaints(expect.job, leg.typed.code if expect.run_code is None else expect.run_code)
        self._legs.append(leg)
        self.complaints += proof.end_complaints(expect, leg, scene.paths, attempts_before=before)

    def _left_complaints(self) -> Iterator[str]:
        end = time.monotonic() + LAST_BREATH_S
        while (left := self._scene.living()) and time.monotonic() < end:
            time.sleep(0.05)
        if left:
            yield f"processes are left: {left}"

    def _last_complaints(self, straight: dict[int, float]) -> Iterator[str]:
        fault, paths = self._fault, self._scene.paths
        resumes_after = self._stopped_at() if fault.resumes_after is None else fault.resumes_after
        restarted = fault.second is not None or fault.first.restarts > 0 or fault.first.begins > 1
        yield from proof.work_complaints(self._rows, resumes_after, restarted=restarted)
        yield from proof.loss_complaints(self._rows, straight)
        yield from proof.goodput_complaints(paths)
        for number_ in paths.attempt_numbers():
            if (pulses := pulse_folder(str(paths.root), number_)).exists():
                yield f"left in memory: {pulses}"
        if fault.aside is not None:
            yield from self._aside_complaints(fault.aside)

    def _stopped_at(self) -> int:
        """Return the step that the stop has saved: of the first command, or of the first of its attempts."""
        if self._fault.first.begins < 2:
            return self._legs[0].saved
        end = read_end(self._scene.paths.attempt(1).ended)
        return -1 if end is None or end.status != "saved" else end.step

    def _aside_complaints(self, expect: Expect) -> Iterator[str]:
        typed = self._aside
        if typed is None or typed.code != expect.code or proof.seen_line(expect.says, typed.output) is None:
            yield f"the other command came to something else than {expect}: {typed}"

    def _seen(self) -> str:
        """Return what the user saw of the fault: the line of the other command, of the first, or of the second."""
        fault = self._fault
        told = [(fault.aside, self._aside), *((fault.first, leg.typed) for leg in self._legs[:1])]
        lines = (proof.seen_line(expect.says, typed.output) for expect, typed in told if expect and typed)
        return next((line for line in lines if line), "").replace(str(self._scene.folder) + "/", "")


def _run_straight(folder: Path, backend: str) -> dict[int, float]:
    with Scene(folder, backend) as scene:
        typed = scene.type().wait()
        rows = read_metrics(scene.paths.metrics)
    if typed.code != 0:
        raise DrillError(f"the undisturbed run of {backend} ended with {typed.code}:\n{typed.output}")
    return {step_of(row) or 0: number(row, "loss") or 0.0 for row in rows}


def _run_stopped(folder: Path, backend: str) -> Path:
    with Scene(folder, backend) as scene:
        scene.arrange([_STOP_AT])
        scene.command = scene.type()
        injections.terminate(_STOP_AT)(scene)
        typed = scene.command.wait()
    if typed.code != 75:
        raise DrillError(f"the stopped run of {backend} ended with {typed.code}:\n{typed.output}")
    return scene.paths.root
