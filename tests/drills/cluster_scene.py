"""The scene of a drill in Slurm: the command is typed on the login node, and ranks work on nodes with other networks.

All of it runs below this machine's one kernel, so processes are found and ended as on any other scene.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from primus_hydra.launch.cluster.nodelist import expand
from primus_hydra.run.submission import newest_submission
from tests.drills.scene import LIMIT_S, RUN, DrillError, Scene
from tests.slurm.cluster import Cluster

RANKS = 2
ENDING_S = 40.0
"""How long Slurm may take to end what it has decided to end: KillWait and more, on a busy machine."""


class ClusterScene(Scene):
    """A folder that all nodes see; leaving the context ends all jobs and waits for the nodes."""

    def __init__(self, folder: Path, backend: str, cluster: Cluster, *, nodes: int) -> None:
        super().__init__(folder, backend)
        self.cluster = cluster
        self.undo.callback(cluster.wait_idle)
        self._nodes = nodes

    def __enter__(self) -> ClusterScene:
        self.cluster.wait_idle()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.cluster.cancel_all()
        finally:
            super().__exit__(kind, error, trace)

    def words(self, overrides: Iterable[str] = ()) -> list[str]:
        """Return the command line."""
        own = (
            "hydra/launcher=submitit",
            f"launch.nodes={self._nodes}",
            f"launch.ranks_per_node={RANKS // self._nodes}",
        )
        return super().words((*own, *overrides))

    def word(self) -> str | None:
        """Return what `task=runs` calls the run on the login node, where Slurm can be asked."""
        words = [sys.executable, "-m", "primus_hydra", "task=runs", "task.format=json"]
        runs = json.loads(self.on_login(*words, env=self.environment()) or "[]")
        return next((str(run["word"]) for run in runs if run["name"] == RUN), None)

    def complaints(self, job: str | None, code: int) -> Iterator[str]:
        """Compare what Slurm says of the job with what is expected."""
        if job is None:
            return
        self.wait(lambda: self.slurm("JobState") not in ("COMPLETING", "RUNNING"), "the job ends", ENDING_S)
        state, exit_code = self.slurm("JobState"), self.slurm("ExitCode")
        if state != job:
            yield f"Slurm calls the job {state} instead of {job}"
        elif job in ("COMPLETED", "FAILED") and exit_code != f"{code}:0":
            yield f"Slurm says {exit_code} instead of {code}:0"

    def on_login(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        """Run a command on the login node and return its output; raises DrillError if it fails."""
        done = subprocess.run(
            self.cluster.argv(command),
            cwd=self.folder,
            env=dict(env or self.cluster.environment),
            text=True,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise DrillError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    @property
    def job(self) -> str:
        """The number of the newest job."""
        self.until(lambda: newest_submission(self.paths) is not None, "the job is submitted")
        found = newest_submission(self.paths)
        if found is None:
            raise DrillError("the submission is gone")
        return found.job_id

    def slurm(self, field: str) -> str:
        """Return what Slurm says of the job."""
        words = self.on_login("scontrol", "show", "job", "--oneliner", self.job).split()
        return next((word.partition("=")[2] for word in words if word.startswith(f"{field}=")), "")

    def nodes(self) -> list[str]:
        """Return the nodes that the job has, the first one first."""
        return expand(self.slurm("NodeList"))

    def said(self, node: int = 0) -> str:
        """Return what the task of a node has said in this submission, nodes counted from 0."""
        newest = max(self.paths.submission_numbers())
        log = self.paths.submission(newest).node_log(node)
        return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

    def wait(self, true: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        """Wait until something holds, whether or not the command has ended; raises DrillError if it takes too long."""
        end = time.monotonic() + limit_s
        while not true():
            if time.monotonic() > end:
                raise DrillError(f"waited {limit_s:g} s until {what}")
            time.sleep(0.1)

    def environment(self) -> dict[str, str]:
        """Return what the shell of the login node exports."""
        slurm = {name: self.cluster.environment[name] for name in ("SLURM_CONF", "PATH")}
        return super().environment() | self.variables | slurm

    def _argv(self, argv: list[str]) -> list[str]:
        path = self.variables.get("PATH")  # that of the command alone: the way to the login node needs programs
        return self.cluster.argv(argv if path is None else ["/usr/bin/env", f"PATH={path}", *argv])
