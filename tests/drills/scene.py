"""The scene of a drill: a folder, the command that is typed there, and the processes below it.

Every process of a scene carries the scene's folder in its environment, so what is left of it can be found and ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import psutil

from primus_hydra.run.lock import read_holder
from primus_hydra.run.paths import RunPaths
from tests.integration.command import TINY

RUN = "drill"
STEPS, EVERY = 12, 3
"""Steps of every run, and how often it saves."""
LIMIT_S = 240.0
"""How long a command may take on a busy machine before the drill gives up."""
_SITE = Path(__file__).parent / "site"
_ROOT = Path(__file__).parents[2]
_MARK = "DRILL_FOLDER"
_OF_OTHERS = re.compile(r"COV_|PRIMUS_(?!CACHE)|TORCHELASTIC_|SLURM_|(LOCAL_)?(RANK|WORLD_SIZE)$|MASTER_(ADDR|PORT)$")


class DrillError(Exception):
    """The drill could not be done: the fault could not be made, or its effect did not show in time."""


@dataclass(frozen=True, kw_only=True)
class Act:
    """What one rank does at one place (see `site/primus_drill.py`); `restart` None: after every restart again."""

    name: str
    place: str
    step: int
    how: str = "wait"
    rank: int = 0
    code: int = 0
    attempt: int = 1
    restart: int | None = 0


@dataclass(frozen=True, kw_only=True)
class Typed:
    """A command that has ended: its exit code (negative for a signal), what it printed, its wall time in seconds."""

    code: int
    output: str
    seconds: float


class Started:
    """A command at work; what it prints goes to a file."""

    def __init__(self, argv: list[str], folder: Path, environment: Mapping[str, str], output: Path) -> None:
        self._output = output
        self._began = time.monotonic()
        with output.open("wb") as stream:
            self.process = subprocess.Popen(
                argv,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_hear_interrupts,
            )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def printed(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def wait(self) -> Typed:
        """Wait for the end; raises DrillError if it does not come."""
        try:
            code = self.process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise DrillError(f"the command did not end within {LIMIT_S:g} s:\n{self.printed[-3000:]}") from None
        return Typed(code=code, output=self.printed, seconds=time.monotonic() - self._began)


class Scene:
    """A folder with one run, and whatever belongs to it; leaving the context ends what is left and undoes mounts."""

    def __init__(self, folder: Path, backend: str, stopped_run: Callable[[], Path] | None = None) -> None:
        self.folder = folder
        self.backend = backend
        self._stopped_run = stopped_run
        self.paths = RunPaths(folder / "runs" / RUN)
        self.variables: dict[str, str] = {}
        self.undo = contextlib.ExitStack()
        self.command: Started | None = None
        self._acts = folder / "acts.json"
        self._count = 0
        folder.mkdir(parents=True)
        self.arrange(())

    def __enter__(self) -> Scene:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.command is not None:
            self.command.process.wait()
        self.undo.close()

    def arrange(self, acts: Iterable[Act]) -> None:
        """Say what ranks are to do; before they start."""
        self._acts.write_text(json.dumps([asdict(act) for act in acts]), encoding="utf-8")

    def take_stopped_run(self) -> None:
        """Let the run of this scene be a copy of one that was stopped at step 11."""
        if self._stopped_run is None:
            raise DrillError("this scene has no stopped run")
        shutil.copytree(self._stopped_run(), self.paths.root)

    def words(self, overrides: Iterable[str] = ()) -> list[str]:
        """Return the command line."""
        own = ("data=mock", f"training.steps={STEPS}", f"checkpoint.every={EVERY}", "parallel.dp_shard=2")
        return [
            sys.executable,
            "-m",
            "primus_hydra",
            *TINY,
            *own,
            f"backend={self.backend}",
            f"run.name={RUN}",
            *overrides,
        ]

    def type(
        self, overrides: Iterable[str] = (), *, pipe: str | None = None, more: Mapping[str, str] | None = None
    ) -> Started:
        """Type the command; `pipe` is what follows the `|` (the exit code stays the command's)."""
        argv = self.words(overrides)
        if pipe is not None:
            argv = ["bash", "-c", f"{shlex.join(argv)} 2>&1 | {pipe}; exit ${{PIPESTATUS[0]}}"]
        self._count += 1
        output = self.folder / f"output-{self._count}.txt"
        return Started(self._argv(argv), self.folder, {**self.environment(), **(more or {})}, output)

    def wait_for(self, name: str) -> None:
        """Wait until a rank is at the place of an act that waits."""
        self.until(self._acts.with_name(f"{name}.reached").exists, f"a rank reaches the place {name!r}")

    def release(self, name: str) -> None:
        """Let a rank that waits go on."""
        self._acts.with_name(f"{name}.released").touch()

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something holds; raises DrillError if the command ends before, or never gets there."""
        end = time.monotonic() + LIMIT_S
        while not true():
            if self.command is not None and self.command.ended and not true():
                raise DrillError(f"the command ended before {what}:\n{self.printed[-3000:]}")
            if time.monotonic() > end:
                raise DrillError(f"waited {LIMIT_S:g} s until {what}")
            time.sleep(0.01)

    @property
    def printed(self) -> str:
        """What the present command has printed so far."""
        return self.command.printed if self.command is not None else ""

    @property
    def launcher(self) -> int:
        """Process id of the command itself, which holds the run."""
        holder = read_holder(self.paths.lock)
        if holder is None:
            raise DrillError("nobody holds the run")
        return holder.pid

    @property
    def agent(self) -> int:
        """Process id of torch's agent, the launcher's child."""
        return _child(self.launcher, "primus_hydra.launch.agent")

    @property
    def server(self) -> int:
        """Process id of the fork server, the agent's child and the ranks' parent."""
        return _child(self.agent, "forkserver")

    def rank(self, number: int) -> int:
        """Process id of a rank of the newest attempt."""
        newest = max(self.paths.attempt_numbers())
        return int(self.paths.attempt(newest).pid(number).read_text(encoding="ascii").split()[0])

    def living(self) -> list[int]:
        """Return the processes of this scene that still run."""
        return [process.pid for process in psutil.process_iter() if _belongs(process, str(self.folder))]

    def word(self) -> str | None:
        """Return what the real `task=runs` calls the run, where one has to ask elsewhere; None: look at its files."""
        return None

    def complaints(self, job: str | None, code: int) -> Iterator[str]:
        """Compare what a scheduler says with what is expected: here is none."""
        yield from ()

    def environment(self) -> dict[str, str]:
        """Return what the shell of the one who types exports."""
        kept = {name: value for name, value in os.environ.items() if not _OF_OTHERS.match(name)}
        own = {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(_install(self.folder / "site")),
            "DRILL_ACTS": str(self._acts),
            _MARK: str(self.folder),
        }
        return kept | own | self.variables

    def _argv(self, argv: list[str]) -> list[str]:
        """Return a command as it is started where it is typed."""
        return argv


def _hear_interrupts() -> None:
    """A shell lets jobs in its background ignore Ctrl-C, and so does a run below them: not in a drill."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _install(site: Path) -> Iterator[str]:
    """Install the faults as a package that declares its patches; yield the entries of a PYTHONPATH: ours first."""
    info = site / "primus_drill-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: primus-drill\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[primus_hydra.patches]\ncommon = primus_drill\n")
    yield from (str(_SITE), str(site), str(_ROOT))


def _child(parent: int, word: str) -> int:
    for child in psutil.Process(parent).children():
        if any(word in part for part in child.cmdline()):
            return child.pid
    raise DrillError(f"process {parent} has no child that is {word}")


def _belongs(process: psutil.Process, folder: str) -> bool:
    with contextlib.suppress(psutil.Error):
        ours = process.environ().get(_MARK) == folder or any(f"{folder}/" in word for word in process.cmdline())
        return ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
    return False
