"""What makes srun start the tasks of a job in a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.config.schema import ContainerConfig
from primus_hydra.errors import UserError
from primus_hydra.launch.container_mounts import Mount
from primus_hydra.launch.job_code import code_of
from primus_hydra.launch.pyxis import pyxis_step, srun_flags
from tests.support import make_job

PYXIS = {"launch.container.kind": "pyxis", "launch.container.image": "docker://x:1", "launch.container.python": "py"}


def test_pyxis_is_flags_of_srun() -> None:
    config = ContainerConfig(kind="pyxis", image="docker://x:1", env=["HF_TOKEN", "NCCL_*"], extra_args=["--mpi=none"])
    mounts = [Mount.same("/runs/a", read_only=False), Mount(source="/d", target="/data", read_only=True)]

    assert srun_flags(config, mounts=mounts, workdir="/runs/a") == (
        "--container-image=docker://x:1",
        "--container-mounts=/runs/a:/runs/a,/d:/data:ro",
        "--container-workdir=/runs/a",
        "--no-container-mount-home",
        "--no-container-remap-root",
        "--no-container-entrypoint",
        "--container-env=PYTHONPATH,PRIMUS_CACHE,HF_TOKEN",
        "--mpi=none",
    )


def test_the_task_runs_the_copy_of_the_code_with_the_images_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_CACHE", "/cache")
    step = pyxis_step(make_job(PYXIS), Path("/runs/a"), [Path("/runs/.code/1")])

    assert (step.python, step.import_path) == (("py", "-P"), (Path("/runs/.code/1"),))
    assert "--container-mounts=/cache:/cache,/runs/a:/runs/a,/runs/.code/1:/runs/.code/1:ro" in step.srun_args


def test_without_a_copy_the_code_is_taken_as_it_lies() -> None:
    job = make_job(PYXIS)
    step = pyxis_step(job, Path("/runs/a"))
    shown = next(word for word in step.srun_args if word.startswith("--container-mounts="))

    assert step.import_path == tuple(map(Path, code_of(job).python_path))
    assert all(f"{mount.source}:{mount.target}:ro" in shown for mount in code_of(job).mounts)


def test_a_mount_that_the_notation_cannot_hold_is_refused() -> None:
    job = make_job({**PYXIS, "launch.container.mounts": ["/a,b", "relative"]})

    with pytest.raises(UserError) as caught:
        pyxis_step(job, Path("/runs/a"))
    assert len(caught.value.problems) == 2
