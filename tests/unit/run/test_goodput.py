"""Where the wall time of a run went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_hydra.run.goodput import AttemptTime, StartTime, goodput, read_attempts, replayed_seconds
from primus_hydra.run.metrics import Row
from primus_hydra.run.paths import RunPaths


def row(step: int, seconds: float = 2.0, attempt: int = 1) -> Row:
    return {"step": step, "step_time_s": seconds, "attempt": attempt, "restart": 0}


def start(restart: int = 0, **spent: float) -> StartTime:
    return StartTime(restart=restart, spent=spent)


def test_the_parts_add_up_to_the_wall_time() -> None:
    first = AttemptTime(
        began=0, ended=100, starts=(start(startup=10, step=60, checkpoint=8), start(1, startup=5, step=9))
    )
    second = AttemptTime(began=130, ended=150, starts=(start(startup=4, step=14, validation=1),))
    account = goodput([first, second], [row(1), row(2), row(2, 3.0, attempt=2), row(3)])

    assert account is not None
    parts = account.productive + account.startup + account.launch + account.checkpoint + account.validation
    assert parts + account.replayed + account.idle == pytest.approx(account.wall) == 150
    assert (account.idle, account.replayed, account.startup) == (30, 3.0, 19)
    assert (account.attempts, account.restarts) == (2, 1)
    assert account.share == pytest.approx(80 / 150)
    assert account.losses()[0] == ("idle", 30)


def test_a_clock_that_was_set_back_between_attempts_takes_no_time_away() -> None:
    attempts = [AttemptTime(began=began, ended=began + 50, starts=(start(step=40),)) for began in (7200, 3600)]
    account = goodput(attempts, [])

    assert account is not None
    assert (account.wall, account.idle, account.productive, account.launch) == (100, 0, 80, 20)


def test_a_step_that_was_done_again_is_lost_and_one_logged_twice_is_not() -> None:
    assert replayed_seconds([row(1), row(2), row(2), row(3), row(4), row(3), row(4), row(5)]) == 4.0


def test_there_is_nothing_to_account_for_before_the_first_attempt() -> None:
    assert goodput([], []) is None


def test_attempts_are_read_in_order_and_damaged_notes_left_out(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    for number in (1, 2, 10):
        paths.attempt(number).root.mkdir(parents=True)
    note = {"began": 1.0, "ended": 2.0, "starts": [{"restart": 0, "spent": {"step": 0.5}}]}
    paths.attempt(10).times.write_text(json.dumps(note | {"began": 9.0, "ended": 12.0}))
    paths.attempt(1).times.write_text(json.dumps(note))
    paths.attempt(2).times.write_text('{"began": 1}')

    assert [attempt.began for attempt in read_attempts(paths)] == [1.0, 9.0]


def test_the_line_for_people_names_the_largest_loss_first() -> None:
    account = goodput([AttemptTime(began=0, ended=10, starts=(start(startup=1, step=6, checkpoint=3),))], [])
    assert account is not None
    assert account.describe() == "goodput 60% of 10 s (lost: checkpoint 30%, startup 10%)"
