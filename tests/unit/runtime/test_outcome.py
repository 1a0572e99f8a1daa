"""What a rank writes about its end, and reads back."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.errors import HostError, UserError
from primus_hydra.run.paths import AttemptPaths
from primus_hydra.runtime.outcome import Outcome, failure, read_outcome


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path):
    paths = AttemptPaths(tmp_path)
    outcome = Outcome(rank=3, status="stopped", step=7, restart=1)
    outcome.write(paths)
    assert read_outcome(paths.outcome(3)) == outcome


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rank": 1, "unknown": 2}'])
def test_a_damaged_outcome_is_none(tmp_path: Path, text: str):
    path = tmp_path / "rank-0.json"
    path.write_text(text)
    assert read_outcome(path) is None


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("key: wrong"), 2, "key: wrong"),
        (HostError("no GPU"), 3, "no GPU"),
        (RuntimeError("shapes differ"), 1, "RuntimeError: shapes differ"),
        (KeyError(), 1, "KeyError"),
        (SystemExit(9), 9, "SystemExit: 9"),
        (SystemExit(0), 1, "SystemExit: 0"),
    ],
)
def test_an_error_becomes_a_code_and_a_message(error: BaseException, code: int, message: str):
    outcome = failure(0, error)
    assert (outcome.exit_code, outcome.message, outcome.good) == (code, message, False)


def test_only_bugs_carry_a_traceback():
    assert failure(0, UserError("wrong")).traceback is None
    assert "RuntimeError" in (failure(0, RuntimeError("x")).traceback or "")
