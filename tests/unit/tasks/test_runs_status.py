"""One run: all that is known of it, its logs, and its difference from another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_hydra.config.composed import Composed
from primus_hydra.errors import UserError
from primus_hydra.run.atomic import write_json
from primus_hydra.run.paths import RunPaths
from primus_hydra.tasks.runs import Runs
from tests.support import job_tree, make_job
from tests.unit.tasks.made_runs import hold, make_checkpoint, make_run
from tests.unit.tasks.test_plan_effects import watched

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the task on `it`, and return what it prints."""

    def call(**options: Any) -> str:
        overrides = {"run.dir": str(tmp_path)}
        composed = Composed(job=make_job(overrides), tree=job_tree(overrides))
        assert Runs(Runs.Options(**{"run": "it", **options})).run(composed) == 0
        return capsys.readouterr().out

    return call


@pytest.fixture
def at_work(tmp_path: Path) -> RunPaths:
    """A run in its second attempt, its ranks at step 8, with a good, a damaged and an unfinished checkpoint."""
    paths = make_run(tmp_path, "it", status="running", step=8, age_s=2, attempts=2)
    hold(paths)
    places = {
        "0": {"section": "step", "step": 8, "silent_s": 0.4},
        "1": {"section": "startup", "step": -1, "silent_s": 3},
    }
    write_json(paths.attempt(2).node("node-0"), {"time": 4e9, "ranks": places})
    write_json(
        paths.attempt(1).hang, {"what": "no progress for 9 s in a step; stuck: rank 1", "stuck": [1], "late": []}
    )
    write_json(paths.attempt(1).ended, {**ENDED, "exit_code": 100, "message": "no progress for 9 s"})
    make_checkpoint(paths, 2)
    (make_checkpoint(paths, 4) / "weights").write_bytes(b"w")
    make_checkpoint(paths, 8, complete=False)
    (paths.checkpoints / "damaged-3").mkdir()
    return paths


ENDED = {"status": "failed", "exit_code": 7, "message": "rank 1 ended", "step": 8, "restarts": 1, "time": 1.0}


def line_of(text: str, beginning: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(beginning))


@pytest.mark.usefixtures("at_work")
def test_the_status_of_a_run_at_work_tells_everything(call: Call) -> None:
    text = call()

    assert text.startswith("it: running after step 8/20, attempt 2\n")
    assert "loss 3.2000, lr 0.001, tokens/s 2.05k, s/step 1" in line_of(text, "measured:")
    assert "process " in line_of(text, "launcher:")
    assert "1  failed (exit code 100, after 1 min 40 s, 1 restart): no progress for 9 s" in line_of(text, "attempts:")
    assert line_of(text, "2  goes on").strip() == "2  goes on (after 1 min 40 s, 1 restart)"
    assert "attempt 1: no progress for 9 s in a step; stuck: rank 1" in line_of(text, "last hang:")
    assert "0  step, step 8, silent for 0.4 s (node-0, " in line_of(text, "ranks:")
    assert "1  startup, before the first step, silent for 3.0 s" in line_of(text, "1  startup")
    assert "3% of 3,700 s (lost: idle 95%" in line_of(text, "goodput:")
    assert "complete: 2" in line_of(text, "checkpoints:")
    assert "weights has 1 bytes instead of 7" in line_of(text, "damaged: step-4")
    assert line_of(text, "being saved:").strip() == "being saved: step-8"
    assert line_of(text, "set aside:").strip() == "set aside: damaged-3"
    assert "run.name=it" in line_of(text, "overrides:")


def test_a_run_whose_launcher_was_killed_is_told_as_died_with_what_its_ranks_said(
    at_work: RunPaths, call: Call
) -> None:
    hold(at_work, mark="boot:1")
    outcome = at_work.attempt(2).outcome(1)
    write_json(outcome, {"rank": 1, "status": "failed", "message": "CUDA error", "time": 5.0})
    text = call()

    assert text.startswith("it: died after step 8/20: process ")
    assert "2  died" in text
    assert "its launcher ended without a word; rank 1 said: CUDA error" in text
    assert "ranks:" not in text
    assert "damaged: step-8" in text  # nobody is saving it any more


def test_an_attempt_of_an_older_version_is_told_from_the_state(tmp_path: Path, call: Call) -> None:
    paths = make_run(tmp_path, "it", status="failed", step=5)
    paths.attempt(1).ended.unlink()

    assert "1  failed (exit code 1, after 1 min 40 s, 1 restart): failed at step 5" in line_of(call(), "attempts:")


@pytest.mark.usefixtures("at_work")
def test_the_status_in_json_holds_the_same(call: Call) -> None:
    said = json.loads(call(format="json"))

    assert said["condition"]["word"] == "running"
    assert said["row"]["lr"] == 1e-3
    assert [attempt["exit_code"] for attempt in said["attempts"]] == [100, None]
    assert [rank["section"] for rank in said["ranks"]] == ["step", "startup"]
    assert [item["word"] for item in said["checkpoints"]] == ["complete", "damaged", "being saved", "set aside"]
    assert 0 < said["goodput"]["share"] < 1


@pytest.mark.usefixtures("at_work")
def test_logs_show_the_end_of_each_rank(call: Call) -> None:
    text = call(action="logs", lines=2)

    blocks = [block.splitlines() for block in text.split("\n\n")]
    assert [block[0].split(":")[0] for block in blocks] == ["==> rank 0", "==> rank 1"]
    assert blocks[1][1:] == ["rank 1 attempt 2 line 59", "rank 1 attempt 2 line 60"]
    assert len(call(action="logs").splitlines()) == 2 * 41 + 1


def test_logs_of_one_rank_and_what_the_agent_said(at_work: RunPaths, call: Call) -> None:
    at_work.agent_log.write_bytes(b"ranks failed to start: \xff\n")

    assert call(action="logs", lines=1, rank=1).splitlines()[1:] == ["rank 1 attempt 2 line 60"]
    assert call(action="logs", lines=1).splitlines()[-1] == "ranks failed to start: \ufffd"
    assert json.loads(call(action="logs", lines=1, format="json"))["rank 0"]["lines"] == ["rank 0 attempt 2 line 60"]
    with pytest.raises(UserError, match="ranks with a log: 0 to 1"):
        call(action="logs", rank=9)


def test_a_run_without_logs_says_so(tmp_path: Path, call: Call) -> None:
    RunPaths(tmp_path / "it").attempt(1).root.mkdir(parents=True)

    assert call(action="logs") == "it has no logs yet\n"
    with pytest.raises(UserError, match="no rank has begun a log yet"):
        call(action="logs", rank=0)


def test_a_difference_names_both_values_and_what_set_them_the_decisive_ones_first(tmp_path: Path, call: Call) -> None:
    make_run(tmp_path, "it", overrides={"optimizer.lr": 0.1})
    make_run(tmp_path, "that", overrides={"optimizer.lr": 0.2, "checkpoint.every": 3, "env": {"A": "1"}})
    text = call(action="diff", other="that")

    before, _, after = text.partition("these do not:\n")
    assert before.splitlines() == [
        "these determine the training:",
        "  optimizer.lr",
        "    it    0.1  override 1: optimizer.lr=0.1",
        "    that  0.2  override 1: optimizer.lr=0.2",
    ]
    leaves = [line.strip() for line in after.splitlines() if line.startswith("  ") and not line.startswith("    ")]
    assert leaves == ["checkpoint.every", "env.A", "run.name"]
    assert "    it    not set\n    that  1" in after


def test_equal_runs_have_no_difference_and_json_is_a_list(tmp_path: Path, call: Call) -> None:
    make_run(tmp_path, "it")
    make_run(tmp_path, "that", overrides={"run.name": "it", "training.seed": 7})

    assert call(action="diff", other="it") == "the configurations of it and it are equal\n"
    (found,) = json.loads(call(action="diff", other="that", format="json"))["differences"]
    assert (found["leaf"], found["determining"], found["right"]["value"]) == ("training.seed", True, 7)


def test_a_key_that_an_older_run_did_not_save_has_its_default(tmp_path: Path, call: Call) -> None:
    paths = make_run(tmp_path, "it")
    make_run(tmp_path, "that", overrides={"run.name": "it"})
    tree = yaml.safe_load(paths.config.read_text())
    del tree["optimizer"]["lr"]
    paths.config.write_text(yaml.safe_dump(tree))

    assert call(action="diff", other="that") == "the configurations of it and that are equal\n"


def test_a_difference_needs_a_second_run_and_two_configurations(tmp_path: Path, call: Call) -> None:
    make_run(tmp_path, "it")
    make_run(tmp_path, "that").config.write_text("{ torn")

    with pytest.raises(UserError, match=r"task\.other"):
        call(action="diff")
    with pytest.raises(UserError, match=r"task\.other: there is no run 'thta'"):
        call(action="diff", other="thta")
    with pytest.raises(UserError, match="configuration of that cannot be read"):
        call(action="diff", other="that")


@pytest.mark.parametrize("argv", [("task.run=it",), ("task.run=it", "task.action=stop")])
def test_looking_writes_nothing_and_imports_no_torch(argv: tuple[str, ...], tmp_path: Path) -> None:
    make_run(tmp_path / "work" / "runs", "it", status="running")
    ended = watched(tmp_path, "task=runs", *argv)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "died" in ended.stdout
