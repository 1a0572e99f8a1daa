"""The proof of a drill finds what it must find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.run.atomic import read_json, write_json
from primus_hydra.run.history import AttemptEnd, read_end, write_end
from primus_hydra.run.metrics import Row
from primus_hydra.run.paths import RunPaths
from primus_hydra.run.state import read_state, write_state
from tests.drills import page
from tests.drills.fault import Expect
from tests.drills.lane import Result
from tests.drills.proof import (
    end_complaints,
    goodput_complaints,
    look,
    loss_complaints,
    repeated_steps,
    starts_of,
    work_complaints,
)
from tests.drills.scene import STEPS, Typed
from tests.unit.tasks.made_runs import make_run

STRAIGHT = {step: 7.0 - step / 8 for step in range(1, STEPS + 1)}


def rows(*starts: range) -> list[Row]:
    """Return what starts of the ranks logged; each is an attempt."""
    return [
        {"step": step, "loss": STRAIGHT[step], "attempt": number, "restart": 0}
        for number, start in enumerate(starts, start=1)
        for step in start
    ]


def test_steps_that_were_done_again_are_counted() -> None:
    logged = rows(range(1, 6), range(4, STEPS + 1))

    assert [start[0] for start in starts_of(logged)] == [1, 4]
    assert repeated_steps(logged) == 2


@pytest.mark.parametrize(
    ("resumes_after", "starts", "complaint"),
    [
        (3, (range(1, 6), range(4, STEPS + 1)), None),
        (3, (range(1, 6), range(1, STEPS + 1)), "went on with step 1 instead of 4"),
        (3, (range(1, 6), range(7, STEPS + 1)), "went on with step 7 instead of 4"),
        (3, (range(1, 6), range(4, STEPS)), "the last start logged"),
        (3, (range(1, STEPS + 1),), "only one start"),
        (0, (range(1, STEPS + 1),), None),
    ],
)
def test_lost_work_is_noticed(resumes_after: int, starts: tuple[range, ...], complaint: str | None) -> None:
    found = list(work_complaints(rows(*starts), resumes_after, restarted=True))

    assert bool(found) == (complaint is not None)
    assert (complaint or "") in "\n".join(found)


def test_a_loss_that_differs_in_its_last_bit_or_is_missing_is_noticed() -> None:
    logged = rows(range(1, STEPS + 1))
    assert list(loss_complaints(logged, STRAIGHT)) == []

    off = [{**row, "loss": STRAIGHT[5] + 1e-15} if row["step"] == 5 else row for row in logged]
    assert "step 5" in next(loss_complaints(off, STRAIGHT))
    assert list(loss_complaints(logged[:-1], STRAIGHT)) == [f"no loss of the steps [{STEPS}]"]


TYPED = Typed(code=0, output="starting\ndone: 12 steps, loss 2\n", seconds=1.0)
EXPECT = Expect(code=0, word="finished", says="^done: 12", restarts=1)


def complaints(expect: Expect, paths: RunPaths, typed: Typed = TYPED) -> str:
    return "\n".join(end_complaints(expect, look(paths, typed), paths, attempts_before=0))


def test_an_end_that_is_as_expected_has_no_complaint(tmp_path: Path) -> None:
    assert complaints(EXPECT, make_run(tmp_path, "drill")) == ""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"code": 7}, "exit code 0 instead of 7"),
        ({"word": "failed"}, "calls the run 'finished' instead of 'failed'"),
        ({"says": "^hang"}, "no line says '^hang'"),
        ({"restarts": 0}, "1 restarts instead of 0"),
        ({"begins": False}, "1 attempts instead of 0"),
    ],
)
def test_an_end_that_is_not_as_expected_is_noticed(change: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    assert complaint in complaints(replace(EXPECT, **change), make_run(tmp_path, "drill"))


def test_records_that_contradict_the_exit_code_or_each_other_are_noticed(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "drill")
    state, end = read_state(paths.state), read_end(paths.attempt(1).ended)
    assert state is not None
    assert end is not None

    write_end(paths.attempt(1).ended, replace(end, exit_code=75))
    assert "ended.json finished 75" in complaints(EXPECT, paths)
    write_end(paths.attempt(1).ended, replace(end, step=3))
    assert "3 in ended.json" in complaints(EXPECT, paths)
    paths.attempt(1).ended.unlink()
    assert "ended.json is missing" in complaints(EXPECT, paths)
    write_state(paths.state, replace(state, attempt=2))
    assert "state.json is not of attempt 1" in complaints(EXPECT, paths)


def test_a_killed_launcher_that_has_told_an_end_is_noticed(tmp_path: Path) -> None:
    died = replace(EXPECT, code=-9, word="died")
    paths = make_run(tmp_path, "drill", status="running")

    assert complaints(died, paths, replace(TYPED, code=-9)) == ""
    write_end(
        paths.attempt(1).ended, AttemptEnd(status="failed", exit_code=1, message="", step=3, restarts=1, time=1.0)
    )
    assert "the launcher was killed, but the run says running" in complaints(died, paths, replace(TYPED, code=-9))


def test_an_account_of_the_time_that_makes_no_sense_is_noticed(tmp_path: Path) -> None:
    paths = make_run(tmp_path, "drill")
    assert list(goodput_complaints(paths)) == []

    times = read_json(paths.attempt(1).times)
    assert times is not None
    write_json(paths.attempt(1).times, times | {"ended": float(str(times["began"])) - 3600})
    assert "makes no sense" in next(goodput_complaints(paths))


RESULT = Result(
    fault="exit-7",
    backend="megatron",
    codes=(7, 0),
    words=("failed", "finished"),
    seen="rank 1 `said` a|b " + "x" * 200,
    repeated=1,
    seconds=20.4,
    complaints=(),
)


def test_the_page_tells_each_result_in_one_row() -> None:
    lost = replace(RESULT, backend="torchtitan", complaints=("lost",))
    text = page.result_block([RESULT, lost], where="today")

    second, first = text.splitlines()[-2:]
    assert text.startswith("today: 1 of 2 held.")
    assert first.startswith(
        "| `exit-7` | rank 1 leaves with code 7 in step 5 | megatron | 7, then 0 | failed, then finished"
    )
    assert first.endswith("... | 1 | 20 |".replace("... |", "...` |"))
    assert "a\\|b" in first
    assert second.startswith("| `exit-7` (did not hold) |")


def test_results_of_drills_that_were_not_run_again_stay_on_the_page() -> None:
    old = page.result_block([RESULT, replace(RESULT, backend="torchtitan", complaints=("lost",))], where="old")
    new = page.result_block([replace(RESULT, seconds=99.0)], where="new", before=old)

    assert new.startswith("new: 1 of 2 held.")
    first, second = new.splitlines()[-2:]
    assert first == old.splitlines()[-2]
    assert second.endswith("| 99 |")


def test_only_the_block_between_markers_is_written_anew() -> None:
    text = "before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n"

    new = page.between(text, "results", "new")
    assert new == "before\n<!-- results -->\nnew\n<!-- end of results -->\nafter\n"
    assert page.between(new, "results", "new") == new
    with pytest.raises(ValueError, match="no markers for commands"):
        page.between(text, "commands", "new")
