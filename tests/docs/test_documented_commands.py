"""Every documented command is true: what does not train is run, what trains is planned, shown outputs are real."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from primus_hydra.app import parse_flags, run_command
from primus_hydra.config.compose import Request, compose
from primus_hydra.config.loader import new_loader
from primus_hydra.config.points import BASIC, Points
from primus_hydra.config.reference import reference_pages, write_pages
from primus_hydra.config.sweep import expand_sweep, job_words
from primus_hydra.launch.plan import LaunchPlan
from primus_hydra.run.paths import SweepPaths
from primus_hydra.run.sweep import PointRow, Sweep, write_sweep
from primus_hydra.tasks.preparation import plan_attempt, standing_of
from primus_hydra.tasks.readiness import check_ready
from primus_hydra.tasks.sampled import sweeper_config
from tests.docs.documented import PAGES, ROOT, Documented, documented, holds, make_files, same_everywhere
from tests.docs.documented_data import make_data, written
from tests.unit.tasks.made_runs import make_checkpoint, make_run

COMMANDS = [case for case in documented() if "task=convert" not in case.arguments]


def planned(overrides: list[str]) -> LaunchPlan:
    """Plan a job as training would, on whatever machine."""
    composed = compose(Request(overrides=overrides))
    ready = check_ready(composed.job, os.environ, on_this_host=False)
    paths = standing_of(composed).paths
    return plan_attempt(composed, ready, paths, attempt=1, data=None, resume_from=None)


def points_of(flags: argparse.Namespace) -> list[list[str]]:
    """Return the points of a command; where a sweeper chooses them, one for each end of an interval."""
    if not flags.multirun:
        return [flags.overrides]
    request = Request(overrides=flags.overrides, multirun=True)
    if Points(request).sweeper() != BASIC:
        assert sweeper_config(new_loader(), request, ROOT)
    listed = [re.sub(r"=(?:tag\(log,)?interval\(([^()]*)\)\)?$", r"=\1", word) for word in job_words(flags.overrides)]
    return [list(point.overrides) for point in expand_sweep(listed)]


@pytest.mark.parametrize("case", [case for case in COMMANDS if case.trains], ids=str)
def test_a_documented_command_that_trains_can_be_planned(case: Documented, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    flags = parse_flags(case.arguments)

    for overrides in points_of(flags):
        # The weights come from a run of the command before it on the page.
        trusting = ["launch.check_paths=false"] if any("init_from=hf:runs/" in word for word in overrides) else []
        assert planned([*overrides, *trusting]).argv[-1].endswith("spec.json")


@pytest.mark.parametrize("case", [case for case in COMMANDS if not case.trains], ids=str)
def test_a_documented_command_that_does_not_train_does_what_it_says(
    case: Documented, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OMP_NUM_THREADS", "PYTHONUNBUFFERED", "PRIMUS_CONF", "PRIMUS_PATCHES"):
        monkeypatch.delenv(name, raising=False)
    made = _make_runs(case.arguments) | make_files(case) | make_data(case.arguments)
    capsys.readouterr()
    code, output = _run(case.arguments, capsys)

    # task=deps says with its exit code that something is missing on this machine, which is no fault of the page.
    assert code == 0 or (code == 3 and "task=deps" in case.arguments)
    assert output.strip()
    # A run that is resumed, and finished, gets its picture drawn anew.
    drawn = {path for path in tmp_path.glob("runs/*/plots/*") if "task.action=resume" in case.arguments}
    # What was measured lies in a folder of its own.
    measured = [path for name in ("preflight", "benchmark") if (path := tmp_path / name).exists()]
    assert bool(measured) == bool({"task=preflight", "task=benchmark"} & set(case.arguments))
    drawn |= {path for folder in measured for path in folder.rglob("*")}
    assert {path for path in tmp_path.rglob("*") if path.is_file()} - drawn == made | written(case.arguments)
    assert {"task=migrate", "task=data"} & set(case.arguments) or len([*tmp_path.iterdir()]) == bool(made) + len(
        measured
    )
    if case.output is not None:
        assert holds(same_everywhere(output, tmp_path), same_everywhere(case.output, tmp_path)) is None


def _make_runs(arguments: list[str]) -> set[Path]:
    """Make the runs that a page speaks of where it speaks of runs that there are; return their files."""
    base = Path.cwd() / "runs"
    named = next((word[len("task.runs=[") : -1] for word in arguments if word.startswith("task.runs=[")), "")
    for name in named.split(",") if named else []:
        file = base / Path(name).name / "metrics.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text('{"step": 1, "loss": 8.3, "lr": 0.001}\n')
    if any(word.startswith("task.run=") for word in arguments):
        mine = make_run(base, "mine", attempts=2)
        for step in (10, 20):
            make_checkpoint(mine, step)
        make_run(base, "other", overrides={"optimizer.lr": 0.002, "launch.max_restarts": 3})
    if "task.run=rates" in arguments:
        good = make_run(base / "rates", "6fef6cea")
        row = PointRow(point="6fef6cea", overrides=("optimizer.lr=0.001",), run=str(good.root), state="submitted")
        write_sweep(SweepPaths(base / "rates"), lambda before: Sweep(metric="loss", rows=(row,)))
    return {path for path in base.rglob("*") if path.is_file()}


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run in this process; what Hydra serves gets one of its own, as it may leave its global state changed."""
    if not {"--cfg", "--info", "--hydra-help"} & set(arguments):
        code = run_command(arguments)
        return code, capsys.readouterr().out
    argv = [sys.executable, "-m", "primus_hydra", *arguments]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


def test_the_comparison_of_outputs_sees_a_difference() -> None:
    lines = ["a", "b", "c", "d"]

    assert [holds(lines, shown) for shown in (lines, ["a", "...", "d"], ["...", "c", "..."])] == [None] * 3
    assert holds(lines, ["a", "c", "d"]) == "c"
    assert holds(lines, ["a", "...", "x"]) == "x"
    assert holds(lines, ["a", "b"]) == "the output goes on"


def test_documents_show_commands_of_both_kinds() -> None:
    assert sum(case.trains for case in COMMANDS) > 10
    assert sum(case.output is not None for case in COMMANDS) > 2


def test_the_reference_is_the_schemas_and_nothing_else_lies_there() -> None:
    folder = ROOT / "docs" / "reference"

    assert {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()} == reference_pages()


def test_generating_the_reference_removes_pages_of_nodes_that_are_no_more(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("old")
    write_pages(tmp_path)

    assert {file.name for file in tmp_path.iterdir()} == set(reference_pages())


def test_every_page_that_is_linked_exists() -> None:
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8"))
    ]

    assert links
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []
