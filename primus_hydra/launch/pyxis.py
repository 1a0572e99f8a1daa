"""A submitted job in pyxis: srun itself runs the task of each node in the job's container.

The task is this project's own, from the folders of code that are mounted for it, under the image's interpreter. What it
cannot do from inside, as to put its job back into the queue, it leaves to the script that called srun. Refuses mounts
that pyxis' notation, a list with commas, cannot hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from primus_hydra.config.schema import ContainerConfig, JobConfig
from primus_hydra.data.cache import CACHE_VARIABLE, cache_root
from primus_hydra.errors import Problem, raise_all
from primus_hydra.launch.container_mounts import KEY, Mount, combine, needed_mounts, parse_mounts
from primus_hydra.launch.job_code import code_of

IMPORT_PATH = "PYTHONPATH"


@dataclass(frozen=True, kw_only=True)
class PyxisStep:
    """What makes an srun start its tasks in a container: its arguments, the interpreter there, the import path.

    `cache` is the folder of prepared data, which the container sees under the same path.
    """

    srun_args: tuple[str, ...]
    python: tuple[str, ...]
    import_path: tuple[Path, ...]
    cache: Path


def pyxis_step(job: JobConfig, run_dir: Path, code: Sequence[Path] = ()) -> PyxisStep:
    """Return what the srun of a job needs; `code` are folders with a copy of the code, else it is taken as it lies.

    Raises UserError for mounts that cannot be.
    """
    config, lying = job.launch.container, code_of(job)
    users, problems = parse_mounts(config.mounts)
    copies = [Mount.same(folder, read_only=True) for folder in code]
    needed = [*needed_mounts(job, run_dir=run_dir, cache=cache_root()), *(copies or lying.mounts)]
    mounts, more = combine(users, needed)
    raise_all([*problems, *more, *(_with_comma(mount) for mount in mounts if "," in mount.source + mount.target)])
    return PyxisStep(
        srun_args=srun_flags(config, mounts=mounts, workdir=config.workdir or str(run_dir)),
        python=(config.python, "-P"),
        import_path=tuple(code) or tuple(map(Path, lying.python_path)),
        cache=cache_root(),
    )


def srun_flags(config: ContainerConfig, *, mounts: Sequence[Mount], workdir: str) -> tuple[str, ...]:
    """Return the arguments that make pyxis run each task of an srun in the container.

    Variables of the job are set in it, but for those that the image sets too; the named ones win over the image's.
    """
    shown = ",".join(f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}" for mount in mounts)
    names = ",".join(dict.fromkeys([IMPORT_PATH, CACHE_VARIABLE, *(name for name in config.env if "*" not in name)]))
    return (
        f"--container-image={config.image}",
        *([f"--container-mounts={shown}"] if mounts else []),
        f"--container-workdir={workdir}",
        "--no-container-mount-home",
        "--no-container-remap-root",
        "--no-container-entrypoint",
        f"--container-env={names}",
        *config.extra_args,
    )


def _with_comma(mount: Mount) -> Problem:
    what = f"{mount.source} cannot be mounted on {mount.target}: a comma ends a mount in pyxis' notation"
    return Problem(key=KEY, what=what, hint="use a path without commas")
