"""One cluster for all tests of a session, and a login node to type commands on."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from primus_hydra.run.paths import RunPaths
from primus_hydra.run.submission import Submission, newest_submission
from tests.integration.command import TINY, Ended
from tests.slurm.cluster import Cluster, why_not
from tests.slurm.forked import Forked

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 120
_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Slurm of four nodes."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Cluster(nodes=4, grace_s=20) as made:
        yield made


@dataclass(frozen=True)
class Login:
    """The login node, in a folder that all nodes see."""

    cluster: Cluster
    folder: Path

    def submit(self, *overrides: str, **env: str) -> Ended:
        """Run the command with Slurm as its launcher, to its end."""
        return self.run("hydra/launcher=submitit", *overrides, **env)

    def run(self, *overrides: str, **env: str) -> Ended:
        """Run the command to its end."""
        command = self.start(*overrides, **env)
        return Ended(code=command.wait(TIMEOUT_S), output=command.output)

    def start(self, *overrides: str, **env: str) -> Forked:
        """Start the command in the background."""
        return Forked(
            [*TINY, "run.name=mine", *overrides],
            space=self.cluster.network,
            cwd=self.folder,
            env=self.environment() | env,
            output=self.folder / f"output-{next(_numbers)}",
        )

    def environment(self) -> dict[str, str]:
        """Return what the shell of the login node exports."""
        return self.cluster.environment | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}

    @property
    def paths(self) -> RunPaths:
        """The paths of the run `mine`."""
        return RunPaths(self.folder / "runs" / "mine")

    def submission(self) -> Submission:
        """Return the newest submission of the run, waited for."""
        end = time.monotonic() + TIMEOUT_S
        while (found := newest_submission(self.paths)) is None:
            assert time.monotonic() < end, "nothing was submitted"
            time.sleep(0.05)
        return found

    def until(self, state: str, job: str | None = None) -> str:
        """Wait until a job (the run's newest) is in a state, and return its number."""
        number = job or self.submission().job_id
        end = time.monotonic() + TIMEOUT_S
        while (now := self.cluster.state_of(number)) != state:
            assert time.monotonic() < end, f"job {number} is {now}, not {state}"
            time.sleep(0.1)
        return number

    def until_at_work(self) -> None:
        """Wait until the first attempt of the run is at work on its nodes."""
        end = time.monotonic() + TIMEOUT_S
        while not self.paths.state.exists():
            assert time.monotonic() < end, "no attempt began"
            time.sleep(0.05)


@pytest.fixture
def login(cluster: Cluster, tmp_path: Path) -> Iterator[Login]:
    """The login node of a cluster without jobs."""
    yield Login(cluster, tmp_path)
    if os.environ.get("PRIMUS_KEEP_JOBS") is None:
        cluster.cancel_all()
