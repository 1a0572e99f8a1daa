"""`task=compare`: two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.app import run_command
from primus_hydra.errors import UserError
from primus_hydra.run.metrics import MetricsWriter
from primus_hydra.tasks.compare import compare_runs


def write_run(folder: Path, losses: dict[int, float], **numbers: float) -> None:
    writer = MetricsWriter(folder / "metrics.jsonl", attempt=1, restart=0)
    for step, loss in losses.items():
        writer.write({"step": step, "loss": loss, **numbers})
    writer.close()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "titan", {step: 5 - step / 10 for step in range(1, 51)}, lr=0.1)
    write_run(tmp_path / "runs" / "megatron", {step: 5 - step / 10 + (step == 37) * 0.01 for step in range(1, 41)})
    return tmp_path / "runs"


def compared(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = run_command(["platform=cpu", "task=compare", *options])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_table_shows_some_steps_and_the_largest_difference(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = compared(capsys, "task.runs=[titan,megatron]")

    lines = [line.split() for line in text.splitlines()]
    assert code == 0
    assert ["step", "titan", "megatron", "difference"] in lines
    assert ["1", "4.9", "4.9", "0.00e+00"] in lines
    assert ["37", "1.3", "1.31", "1.00e-02", "largest"] in lines
    assert sum(line[:1] != [] and line[0].isdigit() for line in lines) <= 22
    assert "Steps of both: 40 (10 more in only one of the runs)." in text
    assert "Largest difference: 0.01 at step 37." in text


def test_json_has_every_step(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = compared(capsys, "task.runs=[titan,megatron]", "task.format=json")

    tree = json.loads(text)
    assert [entry["step"] for entry in tree["steps"]] == list(range(1, 41))
    assert tree["largest"]["step"] == 37
    assert tree["largest"]["difference"] == pytest.approx(0.01)


def test_the_command_fails_if_the_difference_is_larger_than_allowed(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(capsys, "task.runs=[titan,megatron]", "task.at_most=0.02")[0] == 0
    code, text, errors = compared(capsys, "task.runs=[titan,megatron]", "task.at_most=1e-3")

    assert code == 2
    assert "Largest difference" in text
    assert "the runs differ by 0.01 in loss at step 37, more than 0.001" in errors
    assert "error: the check failed" in errors
    assert "configuration" not in errors


def test_a_run_may_be_named_by_its_path(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(capsys, f"task.runs=[{runs}/titan,runs/titan]", "task.at_most=0")[0] == 0


def test_a_run_that_is_not_there_is_answered_with_the_nearest(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = compared(capsys, "task.runs=[titen,megatron]")

    assert code == 2
    assert "there is no run 'titen'" in errors
    assert "did you mean titan?" in errors


@pytest.mark.parametrize(
    ("names", "metric", "words"),
    [
        (["titan"], "loss", "two runs are compared, not 1"),
        (["titan", "empty"], "loss", "empty has logged no step yet"),
        (["titan", "late"], "loss", "titan has steps 1 to 50, late has steps 90 to 90"),
        (["titan", "titan"], "los", "did you mean loss"),
        (["qqqq", "xyz"], "loss", "there is no run 'qqqq'.*\n.*\n.*runs there: .*\n.*there is no run 'xyz'"),
    ],
)
def test_what_cannot_be_compared_is_explained(runs: Path, names: list[str], metric: str, words: str) -> None:
    (runs / "empty").mkdir()
    write_run(runs / "late", {90: 1.0})

    with pytest.raises(UserError, match=words):
        compare_runs(names, runs, metric)


def test_a_repeated_step_counts_as_it_was_last_logged(runs: Path) -> None:
    write_run(runs / "again", {1: 9.0, 2: 4.8})
    write_run(runs / "again", {1: 4.9})

    assert compare_runs(["again", "titan"], runs, "loss").largest.difference == 0


def test_a_loss_that_is_not_a_number_is_infinitely_different(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs / "broken", {1: 4.9, 2: float("nan")})

    code, text, _ = compared(capsys, "task.runs=[broken,broken]", "task.at_most=1", "task.format=json")

    tree: dict[str, Any] = json.loads(text)
    assert code == 2
    assert tree["largest"] == {"step": 2, "first": "nan", "second": "nan", "difference": "inf"}
