"""`task=plan` says what fits and how fast, searches layouts, and writes pictures only where it is told to."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from primus_hydra.app import run_command
from tests.unit.plan.settings import PLAIN_LOSS

CLUSTER = ("model=llama3_70b", "platform=mi300x", "parallel.tp=8", "launch.nodes=4")


def test_a_job_for_hardware_elsewhere_is_projected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command([*CLUSTER, "task=plan", "task.format=json"]) == 0
    projection = json.loads(capsys.readouterr().out)["projection"]

    assert all(rule["holds"] for rule in projection["rules"])
    assert projection["memory"]["fits"] is True
    assert projection["speed"]["tokens_per_s"] == pytest.approx(32 * projection["speed"]["tokens_per_s_per_gpu"])
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_is_said_with_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["model=llama3_1_8b", "platform=h100", "training.micro_batch_size=2", "training.global_batch_size=16"]
    assert run_command([*words, "recompute.mode=selective", PLAIN_LOSS, "task=plan"]) == 0
    shown = capsys.readouterr().out

    assert "DOES NOT FIT" in shown
    assert "recompute.mode=full" in shown


def test_a_search_prints_a_line_that_can_be_planned_and_saves_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["model=llama3_8b", "platform=h100", "training.global_batch_size=32", "task=plan"]
    assert run_command([*words, "task.search=true", "task.top=2", "task.output=found"]) == 0
    pasted = capsys.readouterr().out.splitlines()[-1].partition("primus_hydra ")[2]
    rows = [json.loads(line) for line in (tmp_path / "found" / "search.jsonl").read_text().splitlines()]

    assert len(rows) > 20
    assert [row["tokens_per_s_per_gpu"] for row in rows] == sorted(
        (row["tokens_per_s_per_gpu"] for row in rows), reverse=True
    )
    assert run_command([*shlex.split(pasted), "task=plan"]) == 0


def test_pictures_are_written_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = ["model=llama3_8b", "platform=h100", "parallel.pp=4", "training.global_batch_size=16"]
    assert run_command([*pipeline, "task=plan", "task.output=pictures"]) == 0
    names = {file.name for file in (tmp_path / "pictures").iterdir()}

    assert names == {f"{name}.{form}" for name in ("memory", "timeline", "scaling") for form in ("svg", "png")} | {
        "plan.html"
    }
    page = (tmp_path / "pictures" / "plan.html").read_text()
    assert page.count("<svg") == 3
    assert "src=" not in page
    assert "tokens/s/GPU" in page


def test_a_search_needs_a_platform_that_states_its_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["platform=cpu", "task=plan", "task.search=true"]) == 2
    assert "no rates to search by" in capsys.readouterr().err
