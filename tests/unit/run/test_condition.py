"""What a run says of itself, held against the process behind it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from primus_hydra.run.condition import SILENT_AFTER_S, condition_of
from primus_hydra.run.paths import RunPaths
from tests.unit.tasks.made_runs import hold, make_run

NOBODY = 4_194_303
"""A process id above what Linux gives out by default."""


def word(paths: RunPaths) -> str:
    return condition_of(paths).word


@pytest.mark.parametrize("status", ["saved", "finished", "failed", "interrupted"])
def test_a_run_at_rest_is_what_it_says(status: str, tmp_path: Path) -> None:
    assert word(make_run(tmp_path, "it", status=status)) == status


def test_a_run_whose_launcher_lives_runs(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="running")
    holder = hold(paths)

    condition = condition_of(paths)
    assert (condition.word, condition.live, condition.holder) == ("running", True, holder)


@pytest.mark.parametrize("how", ["killed", "its number was given away", "its number was given away in another boot"])
def test_a_run_that_says_it_runs_and_has_no_launcher_died(how: str, tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="running")
    changes = {
        "killed": {"pid": NOBODY, "mark": "boot:1"},
        "its number was given away": {"mark": "boot:1"},
        "its number was given away in another boot": {"mark": None, "since": 1000.0},
    }[how]
    hold(paths, **changes)

    condition = condition_of(paths)
    assert (condition.word, condition.live) == ("died", False)


def test_a_run_that_says_it_runs_and_gave_its_lock_back_died(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="running")
    paths.lock.write_text("")

    assert word(paths) == "died"


def test_a_clock_that_was_set_back_or_forward_changes_nothing(tmp_path: Path) -> None:
    for shift_s in (-86_400.0, 86_400.0):
        paths = make_run(tmp_path, f"it{shift_s}", status="running", age_s=shift_s)
        hold(paths, since=time.time() - shift_s - 200)
        assert word(paths) == "running"


def test_the_next_attempt_is_starting_while_the_state_is_of_the_one_before(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="failed")
    hold(paths, since=time.time())

    assert word(paths) == "starting"


def test_an_attempt_that_was_killed_before_its_first_word_died(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="saved")
    hold(paths, since=time.time(), pid=NOBODY, mark="boot:1")

    assert word(paths) == "died"


def test_a_run_of_another_machine_is_known_by_its_news(tmp_path: Path) -> None:
    fresh, old = (make_run(tmp_path, name, status="running", age_s=age) for name, age in (("a", 5.0), ("b", 900.0)))
    for paths, age in ((fresh, 5.0), (old, 900.0)):
        hold(paths, host="node7", since=time.time() - age - 200)

    assert (word(fresh), word(old)) == ("running", "silent")
    node = old.attempt(1).node("node-0")
    node.parent.mkdir(parents=True)
    node.write_text(json.dumps({"time": time.time() - SILENT_AFTER_S / 2, "ranks": {}}))
    assert word(old) == "running"


def test_the_launcher_takes_and_gives_back_what_is_looked_at(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="running", age_s=-5.0)
    code = (
        "import sys, pathlib; from primus_hydra.run.lock import RunLock\n"
        "with RunLock(pathlib.Path(sys.argv[1]) / 'lock'): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(paths.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"held\n"
        state = json.loads(paths.state.read_text())
        paths.state.write_text(json.dumps(state | {"started_at": time.time()}))
        while_held = word(paths)
        launcher.kill()
    assert (while_held, word(paths)) == ("running", "died")
