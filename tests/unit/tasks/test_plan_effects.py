"""The plan leaves no trace: no file, no folder, no lock, no cache, no torch; watched from inside the interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.command import TINY

_WATCHED = """
import os, sys
sys.dont_write_bytecode = True
changes = []
FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def watch(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & FLAGS and args[0] != os.devnull:
        changes.append(f"open {args[0]}")
    if event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.truncate", "shutil.rmtree"):
        changes.append(f"{event} {args[0]}")
    if event == "import" and args[0].partition(".")[0] in ("torch", "torchtitan", "transformers"):
        changes.append(f"import {args[0]}")

sys.addaudithook(watch)
from primus_hydra.app import run_command
code = run_command(sys.argv[1:])
changes += [f"loaded {name}" for name in ("torch", "torchtitan", "matplotlib") if name in sys.modules]
sys.stderr.write("\\n".join(changes))
sys.exit(code)
"""


def watched(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    environment = os.environ | {"HOME": str(home), "PRIMUS_CACHE": str(folder / "cache"), "TMPDIR": str(home)}
    return subprocess.run(
        [sys.executable, "-c", _WATCHED, *argv],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "argv",
    [
        (*TINY, "task=plan", "parallel.dp_shard=2"),
        (*TINY, "-m", "task=plan", "task.format=json", "optimizer.lr=1e-3,2e-3"),
        ("model=llama3_8b", "platform=mi300x", "task=plan"),
        ("task=help", "task.key=optimizer"),
    ],
)
def test_nothing_is_written_and_torch_is_not_imported(argv: tuple[str, ...], tmp_path: Path) -> None:
    ended = watched(tmp_path, *argv)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(ended.stdout) > 300
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["home", "work"]


def test_the_watch_sees_a_command_that_writes(tmp_path: Path) -> None:
    ended = watched(tmp_path, *TINY, "resume=must", "data=mock", "run.name=made")

    assert ended.returncode == 2
    assert "os.mkdir" in ended.stderr
    assert "lock" in ended.stderr


def test_a_sweep_in_json_is_one_document(tmp_path: Path) -> None:
    ended = watched(tmp_path, *TINY, "-m", "task=plan", "task.format=json", "training.seed=1,2")

    assert len(json.loads(ended.stdout)) == 2
