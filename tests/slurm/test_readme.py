"""The README's line for Slurm, word for word, on a real one."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from primus_hydra.run.metrics import read_metrics, step_of
from primus_hydra.run.paths import RunPaths
from tests.docs.documented import ROOT
from tests.slurm.conftest import Login

pytestmark = pytest.mark.ranks

STEPS = 3
TIMEOUT_S = 400  # the tokenizer is learned first, if no other test has done so


def readme_line() -> list[str]:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    return shlex.split(next(line for line in lines if line.endswith("hydra/launcher=submitit")))


def test_the_readmes_line_trains_on_a_node_and_ends_with_its_run(login: Login) -> None:
    program, *words = readme_line()
    assert program == "python"
    ended = subprocess.run(
        login.cluster.argv([sys.executable, *words, f"training.steps={STEPS}", "run.name=mine"]),
        cwd=login.folder,
        env=login.environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "submitted mine as job" in ended.stdout
    assert "runs on node" in ended.stdout
    paths = RunPaths(login.folder / "runs" / "mine")
    assert [step_of(row) for row in read_metrics(paths.metrics)][-1] == STEPS
    assert paths.checkpoint(STEPS).is_dir()
    assert login.cluster.state_of(login.submission().job_id) == "COMPLETED"
