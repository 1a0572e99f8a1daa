"""The script that sbatch is given: readable, complete, and the same wherever it is submitted.

The lines for sbatch are written by submitit. The job itself stands in the script, behind srun: srun hands it to the
one task of each node, so that nothing but this file is needed to start the same job again. Of the environment the
script holds nothing: variables keep the values that they have where it is submitted.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from submitit.slurm.slurm import _make_sbatch_string

_END = "JOB"


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """A job for Slurm.

    `command` is what srun starts on each of the `nodes`; it reads `configuration` from its standard input. `options`
    are those of sbatch by their long names, True for one without a value. `cpus` is restated for srun, which takes it
    from nowhere else since Slurm 22.05; None: the task may use all CPUs that the job has on its node. `folder` gets
    the logs. `import_path` are folders that Python searches first for code. `about` is told in the first lines. A task
    that cannot reach Slurm leaves `requeue_note` where its job is to go back into the queue.
    """

    name: str
    nodes: int
    command: tuple[str, ...]
    configuration: str
    folder: Path
    options: Mapping[str, str | int | bool] = field(default_factory=dict)
    srun_args: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    cpus: int | None = None
    import_path: tuple[Path, ...] = ()
    about: tuple[str, ...] = ()
    requeue_note: Path | None = None

    @property
    def log(self) -> Path:
        """What the script itself, its setup and srun say."""
        return self.folder / "job.log"

    def node_log(self, node: int) -> Path:
        """What the task of a node says, nodes counted from 0."""
        return self.folder / f"node-{node}.log"


def script_text(job: SlurmJob) -> str:
    """Return the script; it ends with a line feed."""
    parts = [
        ["#!/bin/bash", *(f"# {line}" for line in _one_lines(job.about))],
        _sbatch_lines(job),
        _setup_lines(job),
        ["# A signal for the whole job must not end this shell before the tasks have saved.", "trap : TERM USR2"],
        _srun_lines(job),
        _requeue_lines(job.requeue_note),
    ]
    return "\n".join("\n".join(part) + "\n" for part in parts if part)


def srun_argv(job: SlurmJob) -> list[str]:
    """Return srun with its options and the command of a task."""
    return [*_srun(job), *job.command]


def _srun(job: SlurmJob) -> list[str]:
    cpus = "--cpu-bind=none" if job.cpus is None else f"--cpus-per-task={job.cpus}"
    return [
        "srun",
        f"--nodes={job.nodes}",
        f"--ntasks={job.nodes}",
        "--ntasks-per-node=1",
        cpus,
        "--kill-on-bad-exit=1",
        "--unbuffered",
        "--export=ALL",
        f"--output={_pattern(job.folder / 'node-')}%t.log",
        "--open-mode=append",
        *job.srun_args,
    ]


def _sbatch_lines(job: SlurmJob) -> list[str]:
    """Let submitit write the lines; its own defaults (five minutes, a key of accounting, two logs) are left out."""
    options = {
        "signal": "USR2@90",
        **job.options,
        "job-name": _one_line(job.name),
        "output": _pattern(job.log),
        "export": "ALL",
    }
    text = _make_sbatch_string(
        command="",
        folder=job.folder,
        nodes=job.nodes,
        ntasks_per_node=1,
        time=None,  # type: ignore[arg-type]
        wckey=None,  # type: ignore[arg-type]
        stderr_to_stdout=True,
        use_srun=False,
        additional_parameters={name.replace("-", "_"): value for name, value in options.items()},
    )
    return [line for line in text.splitlines() if line.startswith("#SBATCH ")]


def _setup_lines(job: SlurmJob) -> list[str]:
    lines = ["# setup", "set -e", *job.setup, "set +e"] if job.setup else []
    if job.import_path:
        path = ":".join(map(str, job.import_path))
        lines.append(f'export PYTHONPATH={shlex.quote(path)}"${{PYTHONPATH:+:$PYTHONPATH}}"')
    return lines


def _srun_lines(job: SlurmJob) -> list[str]:
    end = _delimiter(job.configuration)
    words = " \\\n  ".join([*(shlex.quote(word) for word in _srun(job)), shlex.join(job.command)])
    body = job.configuration if job.configuration.endswith("\n") else f"{job.configuration}\n"
    return [f"{words} <<'{end}'", f"{body}{end}"]


def _requeue_lines(note: Path | None) -> list[str]:
    if note is None:
        return []
    return ["code=$?", f'rm {shlex.quote(str(note))} 2>/dev/null && scontrol requeue "$SLURM_JOB_ID"', 'exit "$code"']


def _delimiter(text: str) -> str:
    """Return a word that is no line of the text."""
    lines = set(text.splitlines())
    end = _END
    while end in lines:
        end += "_"
    return end


def _pattern(path: Path) -> str:
    """Return a path in which Slurm replaces nothing."""
    return str(path).replace("%", "%%")


def _one_lines(texts: tuple[str, ...]) -> list[str]:
    return [_one_line(text) for text in texts]


def _one_line(text: str) -> str:
    return " ".join(text.split())
