"""Puts the process that a launch starts into a container, and sees to it that the container ends with the launch.

The values of the environment are handed over through the standard input of the container's first process
(`launch.contained`): neither a command line, which every user of the machine can read, nor a file holds them. That the
input ends when the launcher dies, however it dies, ends the container too. Only a container that this launch has
started is ever removed, by the id that its engine gave.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from primus_hydra.config.schema import ContainerConfig, JobConfig
from primus_hydra.data.cache import CACHE_VARIABLE, cache_root
from primus_hydra.errors import Problem, raise_all
from primus_hydra.launch import contained
from primus_hydra.launch.container import (
    ENGINES,
    ContainerHost,
    Containment,
    Contents,
    container_argv,
    container_name,
    removal_argv,
)
from primus_hydra.launch.container_check import read_container_host
from primus_hydra.launch.container_mounts import Mount, combine, needed_mounts, parse_mounts
from primus_hydra.launch.job_code import Code, code_of
from primus_hydra.launch.plan import LaunchPlan
from primus_hydra.run.process import start_mark

REMOVAL_LIMIT_S = 30.0
_GPU_MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
"""Which GPUs are the job's: a container sees all of the node."""


def is_contained(job: JobConfig) -> bool:
    """Whether this process has to start a container for the ranks; srun does it where there is pyxis."""
    return job.launch.container.kind not in ("none", "pyxis")


def python_inside(job: JobConfig) -> list[str]:
    """Return the container's interpreter; the import path is handed over, so that it needs no working directory."""
    return [job.launch.container.python, "-P"]


def contain(plan: LaunchPlan, job: JobConfig, host: ContainerHost | None = None) -> LaunchPlan:
    """Return a plan with a container around its process, or as it is for a job that wants none.

    The plan must have been made with `python_inside`. Raises UserError for mounts that cannot be, and for a rank that
    an outer launcher has started already.
    """
    if not is_contained(job):
        return plan
    if plan.how == "joined":
        raise_all([_joined(job.launch.container)])
    config, attempt = job.launch.container, plan.spec.attempt_paths
    code = code_of(job)
    mounts, problems = job_mounts(job, plan, code)
    raise_all(problems)
    contents = Contents(
        name=container_name(plan.spec.paths.root, plan.spec.attempt, plan.node),
        run_dir=plan.spec.run_dir,
        id_file=str(attempt.container_id(plan.node)),
        mounts=tuple(mounts),
        workdir=config.workdir or plan.spec.run_dir,
        argv=(*python_inside(job), code.module_file(contained), *plan.argv),
    )
    containment = Containment(
        config=config,
        name=contents.name,
        argv=container_argv(config, job.platform, host or read_container_host(job), contents),
        mounts=contents.mounts,
        workdir=contents.workdir,
        python_path=code.python_path,
        passed=(*config.env, *_GPU_MASKS),
        id_file=attempt.container_id(plan.node),
        begun=attempt.container_begun(plan.node),
    )
    return replace(plan, container=containment)


def job_mounts(job: JobConfig, plan: LaunchPlan, code: Code) -> tuple[list[Mount], list[Problem]]:
    """Return everything that a job's container sees, and the problems with what the user mounts."""
    users, problems = parse_mounts(job.launch.container.mounts)
    needed = [*needed_mounts(job, run_dir=plan.spec.paths.root, cache=cache_root()), *code.mounts]
    if job.launch.container.shm_size is not None:
        needed.append(Mount.same(plan.spec.pulses(plan.node), read_only=False))
    there = [mount for mount in needed if not mount.read_only or Path(mount.source).exists()]
    mounts, more = combine(users, there)
    return mounts, [*problems, *more]


class ContainedProcess:
    """The engine's process of one containment. Its standard input stays open, and its end ends the container."""

    def __init__(self, containment: Containment) -> None:
        self._containment = containment
        self._log: Path | None = None
        self._log_began = 0

    def start(self, variables: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start the container; `variables` are what the launch itself sets. What it prints goes to `log`."""
        containment = self._containment
        for left in (containment.id_file, containment.begun):
            left.unlink(missing_ok=True)  # of an attempt of this number that died before it was counted
        for mount in containment.mounts:
            if not mount.read_only and not Path(mount.source).exists():
                Path(mount.source).mkdir(parents=True)
        with log.open("ab") as output:
            self._log, self._log_began = log, output.tell()
            process = subprocess.Popen(
                containment.argv, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        # In a thread: an image that has to be fetched first may keep a long line waiting.
        line = handed_over(containment, variables)
        threading.Thread(target=_hand_over, args=(process, line), daemon=True).start()
        return process

    def end(self, process: subprocess.Popen[bytes], *, killed: bool) -> None:
        """Let go of the container; one whose engine was killed may still be there, and is removed."""
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        container_id = _read(self._containment.id_file).strip()
        if killed and container_id and self._containment.config.kind in ENGINES:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    removal_argv(self._containment.config, container_id),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=REMOVAL_LIMIT_S,
                    check=False,
                )

    def failure(self, code: int) -> str | None:
        """Return why the container never ran, where its engine ended with `code`; None if it did run."""
        if self._containment.begun.exists() or self._log is None:
            return None
        said = [line for line in _read(self._log, self._log_began).splitlines() if line.strip()]
        words = next((line for line in reversed(said) if "error" in line.lower()), said[-1] if said else "no word")
        return f"{self._containment.config.kind} did not start the container (exit code {code}): {words}"


def handed_over(containment: Containment, variables: Mapping[str, str]) -> bytes:
    """Return the line that the first process in the container reads."""
    said = {
        "environment": {
            **chosen(os.environ, containment.passed),
            CACHE_VARIABLE: str(cache_root()),
            **variables,
        },
        "python_path": list(containment.python_path),
        "workdir": containment.workdir,
        "begun": str(containment.begun),
        "launcher": {"pid": os.getpid(), "mark": start_mark(os.getpid())},
    }
    return json.dumps(said).encode() + b"\n"


def chosen(environment: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    """Return the variables whose names fit one of the patterns."""
    return {
        name: value
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def _hand_over(process: subprocess.Popen[bytes], line: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # the container has ended before it could listen
        if process.stdin is not None:
            process.stdin.write(line)
            process.stdin.flush()


def as_process_code(code: int) -> int:
    """Turn the shell's code of a signal, as an engine passes it on, into Popen's."""
    return 128 - code if 128 < code <= 128 + 64 else code


def _read(path: Path, offset: int = 0) -> str:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _joined(config: ContainerConfig) -> Problem:
    return Problem(
        key="launch.container.kind",
        what=f"an outer torchrun or srun has started this rank already, outside of a container of {config.kind}",
        hint="start the outer launcher in the container, with launch.container.kind=none",
    )
