from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.slurm.script import SlurmJob, script_text, srun_argv

NASTY = "a: 'it''s $HOME `id` \\ \"x\"'\nJOB\nb: é\n"


def job(folder: Path = Path("/runs/mine/submissions/1"), **values: Any) -> SlurmJob:
    given: dict[str, Any] = {"name": "mine", "nodes": 2, "command": ("cat",), "configuration": "a: 1\n", **values}
    return SlurmJob(folder=folder, **given)


def test_every_option_stands_once_in_the_lines_for_sbatch() -> None:
    text = script_text(job(options={"partition": "main", "time": "10", "requeue": True, "comment": "x 'y'"}))
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]

    assert lines == sorted(lines)
    assert [shlex.split(line)[0] for line in lines] == [
        "comment=x 'y'",
        "export=ALL",
        "job-name=mine",
        "nodes=2",
        "ntasks-per-node=1",
        "open-mode=append",
        "output=/runs/mine/submissions/1/job.log",
        "partition=main",
        "requeue",
        "signal=USR2@90",
        "time=10",
    ]


def test_srun_is_told_again_how_many_nodes_tasks_and_cpus_there_are() -> None:
    words = srun_argv(job(cpus=16, srun_args=("--mpi=none",)))

    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=16", "--mpi=none"} <= set(words)
    assert words[-1] == "cat"


def test_a_percent_sign_in_a_path_is_no_pattern_of_slurm() -> None:
    text = script_text(job(Path("/a%j b")))

    assert "#SBATCH --output='/a%%j b/job.log'" in text
    assert "'--output=/a%%j b/node-%t.log'" in text


def run_with_stand_in(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script with an srun that starts one task here."""
    srun = folder / "srun"
    srun.write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n')
    srun.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["bash"], input=text, env=env, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("configuration", [NASTY, "x" * 300_000 + "\n", "JOB\nJOB_\n", "no line feed"])
def test_the_job_reaches_the_task_as_it_is(tmp_path: Path, configuration: str) -> None:
    done = run_with_stand_in(tmp_path, script_text(job(configuration=configuration)))

    assert done.stdout.removesuffix("\n") == configuration.removesuffix("\n")


@given(words=st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",))), max_size=4))
def test_the_words_of_the_command_stay_as_they_are(words: list[str]) -> None:
    text = script_text(job(command=("printf", "%s\\0", *words)))
    line = text.partition("--open-mode=append \\\n  ")[2]

    assert shlex.split(line.partition(" <<'JOB'")[0]) == ["printf", "%s\\0", *words]


def test_the_exit_code_is_that_of_the_tasks_and_a_setup_that_fails_ends_the_job(tmp_path: Path) -> None:
    assert run_with_stand_in(tmp_path, script_text(job(command=("sh", "-c", "exit 7")))).returncode == 7
    failed = run_with_stand_in(tmp_path, script_text(job(setup=("false", "echo never"), command=("echo", "no"))))
    assert (failed.returncode, failed.stdout) == (1, "")


def test_the_code_that_was_submitted_comes_first_and_what_was_exported_stays(tmp_path: Path) -> None:
    text = script_text(job(import_path=(Path("/co de"), Path("/more")), command=("sh", "-c", 'echo "$PYTHONPATH"')))

    assert run_with_stand_in(tmp_path, text).stdout == "/co de:/more\n"
    assert run_with_stand_in(tmp_path, f"export PYTHONPATH=/mine\n{text}").stdout == "/co de:/more:/mine\n"


@pytest.mark.parametrize("code", [0, 75])
def test_a_task_that_cannot_reach_slurm_leaves_a_note_and_the_script_asks_for_it(tmp_path: Path, code: int) -> None:
    note, asked = tmp_path / "the note", tmp_path / "asked"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/bash\necho "$*" > {shlex.quote(str(asked))}\n')
    scontrol.chmod(0o755)
    leave = f"touch {shlex.quote(str(note))}; " if code else ""
    text = script_text(job(requeue_note=note, command=("sh", "-c", f"{leave}exit {code}")))
    done = run_with_stand_in(tmp_path, f"SLURM_JOB_ID=7\n{text}")

    assert done.returncode == code
    assert (asked.read_text() if asked.exists() else None) == ("requeue 7\n" if code else None)
    assert not note.exists()
