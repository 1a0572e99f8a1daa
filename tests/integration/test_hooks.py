"""Hooks around a real training, as a user writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_hydra.run.state import read_state
from tests.integration.command import Command
from tests.unit.hooks import user_package

IN_THE_RANK = """
import json, os
if "RANK" in os.environ:
    names = ("FROM_SCRIPT", "ROWS", "MINE", "PRIMUS_EXTRA")
    with open(os.environ["FOLDER"] + "/rank.json", "w") as file:
        json.dump({name: os.environ.get(name) for name in names}, file)
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_hooks_run_around_the_ranks_and_what_they_set_arrives_in_them(command: Command):
    folder = command.folder
    site = folder / "site"
    site.mkdir()
    user_package.install(site)
    (site / "sitecustomize.py").write_text(IN_THE_RANK)
    (folder / "prepare.sh").write_text(
        "echo \"env.FROM_SCRIPT=a 'b' \\$c,d=e\"; echo env.MINE=hook; echo extra.data.rows=3; echo prepared\n"
    )
    (folder / "upload.sh").write_text("ls $PRIMUS_RUN_DIR/checkpoints; exit 4\n")
    ended = command.run(
        "run.name=hooked",
        "training.steps=2",
        "+env.MINE=job",
        "hooks.pre_launch=[{script:prepare.sh,name:data}]",
        "hooks.pre_train=[{_target_:user_hooks.tell,rows:12}]",
        "hooks.post_train=[{script:upload.sh}]",
        env={"PYTHONPATH": str(site), "FOLDER": str(folder)},
    )
    assert ended.code == 0, ended.output
    assert json.loads((folder / "rank.json").read_text()) == {
        "FROM_SCRIPT": "a 'b' $c,d=e",
        "ROWS": "12",
        "MINE": "job",
        "PRIMUS_EXTRA": '{"data": {"rows": 3}, "hook": {"rows": 12}}',
    }
    paths = command.paths("hooked")
    ends = json.loads(paths.attempt(1).hooks(0).read_text())["hooks"]
    assert [(end["phase"], end["name"], end["result"]) for end in ends] == [
        ("pre_launch", "data", "done"),
        ("pre_train", "tell", "done"),
        ("post_train", "upload.sh", "failed"),
    ]
    assert "[upload.sh] step-2" in paths.hooks_log(0).read_text()
    state = read_state(paths.state)
    assert state is not None
    assert (state.status, state.exit_code) == ("finished", 0)
    assert "upload.sh: failed: exit code 4" in (state.message or "")
    assert "upload.sh: failed: exit code 4" in ended.output


def test_a_hook_that_fails_stops_the_launch_with_its_code_and_last_lines(command: Command):
    (command.folder / "check.sh").write_text("echo the disk is full; exit 33\n")
    (command.folder / "tell.sh").write_text('echo "$PRIMUS_HOOK_STATUS" >told\n')
    ended = command.run(
        "run.name=stopped", "hooks.pre_launch=[{script:check.sh}]", "hooks.post_train=[{script:tell.sh}]"
    )
    assert ended.code == 33
    assert "the disk is full" in ended.output
    paths = command.paths("stopped")
    assert not paths.attempt(1).spec.exists()
    assert (command.folder / "told").read_text() == "failed\n"
    state = read_state(paths.state)
    assert state is not None
    assert (state.status, state.exit_code) == ("failed", 33)


def test_a_plan_lists_hooks_and_runs_none(command: Command):
    (command.folder / "touch.sh").write_text("touch touched\n")
    ended = command.run(
        "task=plan", "task.show=hooks", "hooks.pre_launch=[{script:touch.sh}]", "hooks.post_train=[{script:touch.sh}]"
    )
    assert ended.code == 0
    assert f"pre_launch  touch.sh  {command.folder}/touch.sh" in ended.output
    assert sorted(path.name for path in command.folder.iterdir()) == ["touch.sh"]
