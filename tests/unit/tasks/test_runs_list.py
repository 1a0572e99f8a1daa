"""`task=runs`: which runs there are, how each stands, and which one a name means."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.composed import Composed
from primus_hydra.errors import UserError
from primus_hydra.run.listing import find_run, list_runs
from primus_hydra.run.manifest import MANIFEST
from primus_hydra.run.overview import overview_of
from primus_hydra.run.paths import RunPaths
from primus_hydra.tasks.runs import Runs
from primus_hydra.ui.output import as_plain
from primus_hydra.ui.runs_text import list_lines, overview_lines
from tests.support import job_tree, make_job
from tests.unit.tasks.made_runs import hold, make_checkpoint, make_run

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the task over the runs in `runs`, and return what it prints."""

    def call(code: int = 0, **options: Any) -> str:
        overrides = {"run.dir": str(tmp_path / "runs")}
        composed = Composed(job=make_job(overrides), tree=job_tree(overrides))
        assert Runs(Runs.Options(**options)).run(composed) == code
        return capsys.readouterr().out

    return call


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Four runs, the points of a sweep among them, and two folders that are none."""
    base = tmp_path / "runs"
    make_run(base, "old", age_s=7200, attempts=3)
    make_run(base, "new", status="running", step=7, age_s=2)
    hold(RunPaths(base / "new"))
    make_run(base, "sweep/0a1b2c3d", status="failed", step=3, age_s=600)
    make_run(base, "sweep/99ff99ff", age_s=300)
    (base / "notes" / "checkpoints").mkdir(parents=True)
    (base / ".cache" / "attempts").mkdir(parents=True)
    (base / "README").write_text("a file")
    return base


@pytest.mark.usefixtures("base")
def test_the_list_shows_every_run_the_newest_news_first(call: Call) -> None:
    head, *rows = call().splitlines()

    assert head.split() == ["run", "state", "step", "loss", "attempts", "restarts", "last", "news", "goodput"]
    assert [row.split()[:5] for row in rows] == [
        ["new", "running", "7/20", "3.3000", "1"],
        ["sweep/99ff99ff", "finished", "20/20", "2.0000", "1"],
        ["sweep/0a1b2c3d", "failed", "3/20", "3.7000", "1"],
        ["old", "finished", "20/20", "2.0000", "3"],
    ]
    assert rows[-1].split()[5:] == ["3", "2", "h", "00", "min", "ago", "2%"]  # 3 x 60 s, less steps done again


@pytest.mark.usefixtures("base")
def test_the_list_is_json_for_programs(call: Call) -> None:
    runs = {run["name"]: run for run in json.loads(call(format="json"))}

    assert runs["old"]["attempts"] == 3
    assert runs["old"]["root"].endswith("/runs/old")
    assert {name: run["word"] for name, run in runs.items() if run["word"] != "finished"} == {
        "new": "running",
        "sweep/0a1b2c3d": "failed",
    }


def test_an_empty_or_absent_folder_has_no_runs_and_that_is_no_error(call: Call, tmp_path: Path) -> None:
    assert "there are no runs in" in call()
    (tmp_path / "runs").mkdir()
    assert "there are no runs in" in call()
    assert call(format="json") == "[]\n"
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_step_is_that_of_the_newest_attempt(base: Path, call: Call) -> None:
    paths = make_run(base, "gone-back", status="running", step=12, attempts=2)
    state = json.loads(paths.state.read_text())
    paths.state.write_text(json.dumps(state | {"attempt": 3, "step": 10}))  # it has not logged a step yet

    assert "10/20" in next(line for line in call().splitlines() if line.startswith("gone-back"))


def test_a_loss_that_is_no_number_is_shown_as_what_it_is(base: Path, call: Call) -> None:
    with RunPaths(base / "old").metrics.open("a") as file:
        file.write('{"step": 20, "loss": null, "nonfinite": {"loss": "nan"}, "attempt": 3}\n')

    assert " nan " in next(line for line in call().splitlines() if line.startswith("old"))
    assert {run["name"]: run["loss"] for run in json.loads(call(format="json"))}["old"] == "nan"


GARBAGE = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"status": 5, "step": "x"}',
    b"\xff\xfe\x00",
    b"{'a': !!python/object:os.system x}",
    b'{"loss": 1}\n{"nonfinite": 3}\n[1]\n{"step": "a", "time": "b", "nonfinite": {"x": {}}}\n',
    b'{"pid": 0, "host": "", "since": 1e400, "command": 1}',
    b'{"ranks": {"x": {}, "0": 3}, "time": "now"}',
    b'{"began": 5, "ended": [], "starts": [{"restart": 0, "spent": {"step": "x"}}]}',
    b'{"began": 1, "ended": 1, "starts": [{"restart": 0, "spent": {"step": 9}}]}',
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_no_foreign_or_half_written_file_stops_the_list_or_the_status(garbage: bytes, tmp_path: Path) -> None:
    paths = make_run(tmp_path, "it", status="running", step=3)
    hold(paths)
    attempt = paths.attempt(1)
    manifest = make_checkpoint(paths, 3) / MANIFEST
    own = (paths.state, paths.metrics, paths.lock, paths.config, paths.provenance, paths.goodput, manifest)
    of_attempt = (
        attempt.times,
        attempt.command,
        attempt.ended,
        attempt.hang,
        attempt.node("node-0"),
        attempt.outcome(0),
    )
    for path in (*own, *of_attempt):
        path.parent.mkdir(exist_ok=True)
        before = path.read_bytes() if path.exists() else b"{}"
        path.write_bytes(garbage)
        assert next(line for line in list_lines(list_runs(tmp_path), tmp_path, now=5.0) if line.startswith("it "))
        overview = overview_of("it", paths.root)
        assert next(overview_lines(overview, now=5.0)).startswith("it: ")
        assert len(list(overview_lines(overview, now=5.0))) > 3
        json.dumps(as_plain(overview), allow_nan=False)
        path.write_bytes(before)


@pytest.mark.parametrize(
    "name", ["state.json", "metrics.jsonl", "lock", "config.yaml", "goodput.json", "provenance.json"]
)
def test_a_folder_in_the_place_of_a_file_stops_nothing(name: str, base: Path, call: Call) -> None:
    path = base / "new" / name
    path.unlink(missing_ok=True)
    path.mkdir()

    assert "new " in call()
    assert call(run="new").startswith("new: ")


def test_a_run_with_nothing_but_a_held_lock_is_starting(base: Path, call: Call) -> None:
    hold(RunPaths(base / "fresh"))

    assert next(line for line in call().splitlines() if line.startswith("fresh")).split()[1:4] == ["starting", "-", "-"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("old", "old"),
        ("ol", "old"),
        ("sweep/99", "sweep/99ff99ff"),
        ("0a1b2c3d", "sweep/0a1b2c3d"),
        ("sweep/0a1b2c3d", "sweep/0a1b2c3d"),
    ],
)
def test_a_run_is_named_by_its_name_or_an_unambiguous_beginning(asked: str, found: str, base: Path) -> None:
    assert find_run(base, asked) == base / found


def test_a_run_is_named_by_its_path_from_anywhere(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base / "sweep")

    assert find_run(Path("/nowhere"), "99ff99ff") == base / "sweep" / "99ff99ff"
    assert find_run(Path("/nowhere"), str(base / "old")) == base / "old"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("odl", "did you mean old?"),
        ("sweep/0a1b2c4d", "did you mean sweep/0a1b2c3d"),
        ("sweep", "2 runs begin with 'sweep': sweep/0a1b2c3d, sweep/99ff99ff"),
        ("something-else", "runs there: new, old, sweep/0a1b2c3d, sweep/99ff99ff"),
        ("~nobody-has-this-name/x", "there is no run"),
        ("notes", "there is no run 'notes'"),
    ],
)
def test_a_wrong_name_gets_the_nearest_ones(asked: str, words: str, base: Path) -> None:
    with pytest.raises(UserError) as caught:
        find_run(base, asked)

    assert words in str(caught.value)


def test_an_exact_name_wins_over_longer_ones_that_begin_with_it(base: Path) -> None:
    make_run(base, "old-2")

    assert find_run(base, "old") == base / "old"


@pytest.mark.parametrize("action", ["logs", "follow", "stop", "resume", "diff"])
def test_an_action_without_a_run_says_what_is_missing(action: str, call: Call) -> None:
    with pytest.raises(UserError, match=r"task\.run: task\.action=" + action):
        call(action=action)


def test_a_sweep_of_the_task_answers_once(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = {"run.dir": str(base)}
    point = Composed(job=make_job(overrides), tree=job_tree(overrides))

    assert Runs(Runs.Options()).run_points([point, point]) == 0
    assert capsys.readouterr().out.count("old") == 1
