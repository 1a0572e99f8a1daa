"""Completion: what may follow, and that real shells take it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from primus_hydra.config.completion import FLAGS, SCRIPTS, complete
from primus_hydra.config.options import file_keys, group_options, own_folders, task_rows
from tests.conftest import CANNOT_BE_HAD

TASKS = ["benchmark", "compare", "convert", "data", "deps", "help", "migrate"]
TASKS += ["patches", "plan", "preflight", "runs", "train"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["optim"], ["optimizer."]),
        (["optimizer.l"], ["optimizer.lr="]),
        (["model.rope"], ["model.rope_scaling.", "model.rope_theta="]),
        (["model.rope_scaling.f"], ["model.rope_scaling.factor="]),
        (["mode"], ["model.", "model="]),
        (["model=llama3_8"], ["model=llama3_8b"]),
        (["resu"], ["resume="]),
        (["resume=m"], ["resume=must"]),
        (["compile.enable="], ["compile.enable=false", "compile.enable=true"]),
        (["precision.fp8=n"], ["precision.fp8=null"]),
        (["parallel.dp_shard="], ["parallel.dp_shard=auto"]),
        (["-m", "model=llama3_8b,qwen3_8"], ["model=llama3_8b,qwen3_8b"]),
        (["tracker=[tensorboard,wa"], ["tracker=[tensorboard,wandb"]),
        (["env"], ["env."]),
        (["task=plan", "task.f"], ["task.format="]),
        (["task=plan", "task.format=j"], ["task.format=json"]),
        (["task.f"], []),
        (["task=deps", "task=patches", "task."], ["task.format="]),
        (["--cf"], ["--cfg"]),
        (["--cfg", "j"], ["job"]),
        (["-i", "defaults"], ["defaults", "defaults-tree"]),
        (["--completion", ""], ["bash", "zsh"]),
        (["optimizer.nothing"], []),
        (["optimizer.lr="], []),
    ],
)
def test_the_last_word_is_completed(words: list[str], answer: list[str]) -> None:
    assert complete(words) == answer


def test_an_empty_word_offers_groups_nodes_and_keys_and_nothing_internal() -> None:
    answer = complete([""])

    assert {"model=", "experiment=", "optimizer.", "init_from="} <= set(answer)
    assert not [word for word in answer if "_values" in word or word.startswith("-")]
    assert complete([]) == answer


def test_folders_of_the_users_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("given", "exported"):
        (tmp_path / folder / "model").mkdir(parents=True)
        (tmp_path / folder / "model" / f"mine_{folder}.yaml").write_text("name: mine\n")
    monkeypatch.setenv("PRIMUS_CONF", str(tmp_path / "exported"))

    assert complete(["model=mine"]) == ["model=mine_exported"]
    both = ["model=mine_exported", "model=mine_given"]
    assert complete(["--config-dir", str(tmp_path / "given"), "model=mine"]) == both
    assert complete([f"--config-dir={tmp_path / 'given'}", "model=mine"]) == both


def test_files_and_folders_are_offered_where_a_path_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trials").mkdir()
    for name in ("trials/one.yaml", "trials/notes.txt", "two.yaml"):
        (tmp_path / name).write_text("")

    assert complete(["experiment=t"]) == ["experiment=trials/", "experiment=two.yaml"]
    assert complete(["experiment=trials/"]) == ["experiment=trials/one.yaml"]
    assert complete(["--config-dir", "t"]) == ["trials/"]
    assert complete(["data.path=trials/n"]) == ["data.path=trials/notes.txt"]
    assert complete(["init_from=hf:tr"]) == ["init_from=hf:trials/"]
    assert complete(["experiment=nowhere/"]) == []


def test_the_file_of_a_task_names_every_option_of_its_class() -> None:
    for option in group_options(own_folders())["task"]:
        assert sorted(file_keys(option)) == sorted(row.name for row in task_rows(option))


def test_every_flag_that_is_offered_is_taken() -> None:
    from primus_hydra.app import parse_flags

    ours = {"--completion"}
    for flag, words in FLAGS.items():
        value = ["--config-dir", "--config-name", "--package"]
        argv = [flag, words[0]] if words else [flag, "x"] if flag in value else [flag]
        if flag not in ours | {"--version"}:
            parse_flags(argv)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `primus-hydra` of this interpreter, for shells to find."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "primus-hydra"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m primus_hydra "$@"\n')
    script.chmod(0o755)
    return folder


_BASH_CALL = """
eval "$(primus-hydra --completion bash)"
COMP_LINE=$1 COMP_POINT=${#1}
read -ra COMP_WORDS <<< "$1"
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_primus_hydra primus-hydra
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("primus-hydra optim", ["optimizer."]),
        ("primus-hydra model=qwen3_8", ["qwen3_8b"]),  # readline keeps what stands before the =
        ("primus-hydra task=plan task.format=m", ["markdown"]),
        ("primus-hydra task=", TASKS),
    ],
)
def test_bash_gets_the_part_of_the_word_that_readline_replaces(line: str, answer: list[str], program: Path) -> None:
    environment = os.environ | {"PATH": f"{program}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "--norc", "-c", _BASH_CALL, "bash", line], env=environment, capture_output=True, text=True, check=True
    )

    assert (ended.stdout.split(), ended.stderr) == (answer, "")


class Terminal:
    """A shell that a person would type in."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self.screen = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, environment)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait_for(self, words: str, timeout_s: float = 30) -> None:
        end = time.monotonic() + timeout_s
        while words not in self.screen:
            left = end - time.monotonic()
            assert left > 0, f"{words!r} did not come: {self.screen!r}"
            if select.select([self.master], [], [], left)[0]:
                self.screen += os.read(self.master, 65536).decode(errors="replace")

    def close(self) -> None:
        os.close(self.master)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=["bash", "zsh"])
def terminal(request: pytest.FixtureRequest, program: Path, tmp_path: Path) -> Iterator[Terminal]:
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"{CANNOT_BE_HAD}{shell} is not installed")
    bare = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    environment = {"PATH": f"{program}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(tmp_path), "PS1": "ready> "}
    opened = Terminal(bare, environment)
    opened.type(f'eval "$(primus-hydra --completion {shell})"; echo know"n"\n')
    opened.wait_for("known")
    yield opened
    opened.close()


def test_a_person_who_presses_tab_gets_the_word_finished(terminal: Terminal) -> None:
    terminal.type("echo; primus-hydra optimizer.l\t")
    terminal.wait_for("optimizer.lr=")
    terminal.type("3e-4 resume=mu\t")
    terminal.wait_for("resume=must")
    terminal.type('\x15echo don"e"\n')
    terminal.wait_for("done")


def test_there_is_a_script_for_both_shells() -> None:
    assert sorted(SCRIPTS) == ["bash", "zsh"]
