"""The plan: what it tells is what training does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.app import run_command
from primus_hydra.config.compose import Request, compose
from primus_hydra.launch.plan import LaunchPlan
from primus_hydra.launch.verdict import LaunchResult
from primus_hydra.tasks import train
from tests.integration.command import TINY

Plan = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with a cache of one's own."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PRIMUS_CACHE", str(tmp_path / "cache"))
    return here


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Plan:
    """Run `task=plan` and read its JSON."""

    def run(*overrides: str, code: int = 0) -> Any:
        assert run_command([*TINY, "task=plan", "task.format=json", *overrides]) == code
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[LaunchPlan]:
    """Keep what training hands to the launcher, instead of starting it."""
    plans: list[LaunchPlan] = []

    def launch(planned: LaunchPlan, *_: object, **__: object) -> LaunchResult:
        plans.append(planned)
        return LaunchResult(exit_code=1, message="not started")

    monkeypatch.setattr(train, "launch", launch)
    return plans


def said(planned: LaunchPlan) -> tuple[Any, ...]:
    """Return argv and variables of the started process and of every rank, as JSON would hold them."""
    shared = {variable.name: (variable.value, variable.reason) for variable in planned.environment}
    ranks = [
        (rank.rank, rank.node, list(rank.argv), shared | {v.name: (v.value, v.reason) for v in rank.environment})
        for rank in planned.ranks
    ]
    return list(planned.argv), planned.how, ranks


def told(view: dict[str, Any]) -> tuple[Any, ...]:
    """Return the same of a printed plan."""
    shared = {v["name"]: (v["value"], v["reason"]) for v in view["launch"]["environment"]}
    ranks = [
        (r["rank"], r["node"], r["argv"], shared | {v["name"]: (v["value"], v["reason"]) for v in r["environment"]})
        for r in view["launch"]["ranks"]
    ]
    return view["launch"]["argv"], view["launch"]["how"], ranks


@pytest.mark.parametrize("layout", [(), ("parallel.dp_shard=2", "launch.max_restarts=1", "env.MINE=a b")])
def test_what_is_planned_is_what_is_launched_before_and_after_the_data_is_prepared(
    layout: tuple[str, ...], plan: Plan, launched: list[LaunchPlan], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = folder / "text.txt"
    text.write_text(
        "\n\n".join(f"Sentence {n} of a small text, so that there is something to read." for n in range(400))
    )
    job = [f"data.path={text}", "data=text", "training.steps=2", *layout]

    for attempt in (1, 2):
        view = plan(*job)
        run_command([*TINY, *job])
        capsys.readouterr()

        assert view["run"]["attempt"] == attempt == launched[-1].spec.attempt
        assert launched[-1].spec.data is not None
        assert told(view) == said(launched[-1])


def test_the_values_that_changed_are_listed_with_where_they_came_from(plan: Plan) -> None:
    sources = {line["key"]: line["source"] for line in plan("optimizer.lr=5e-4")["values"]}

    assert sources["optimizer.lr"] == f"override {len(TINY) + 3}: optimizer.lr=5e-4"
    assert sources["model.name"].startswith("model/llama3_tiny.yaml:")
    assert not {"optimizer.beta1", "run.dir", "task.format"} & set(sources)


def test_all_values_or_those_of_a_node_can_be_shown(plan: Plan) -> None:
    assert {"optimizer.beta1", "run.dir", "task.format"} <= {line["key"] for line in plan("task.show=all")["values"]}
    shown = plan("task.show=optimizer")["values"]
    assert {line["key"].partition(".")[0] for line in shown} == {"optimizer"}
    assert {line["source"] for line in shown} >= {"schema default"}
    assert [line["key"] for line in plan("task.show=optimizer.lr")["values"]] == ["optimizer.lr"]


def test_a_key_that_cannot_be_shown_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*TINY, "task=plan", "task.show=optimzer"]) == 2
    assert "did you mean optimizer?" in capsys.readouterr().err


def test_the_layout_tells_ranks_batches_and_tokens(plan: Plan) -> None:
    layout = plan("parallel.dp_shard=2", "training.global_batch_size=8", "training.micro_batch_size=1")["layout"]

    assert (layout["world_size"], layout["microbatches"]) == (2, 4)
    assert layout["tokens_per_step"] == 8 * 64


def test_every_variable_has_a_reason_and_what_ranks_share_is_told_once(plan: Plan) -> None:
    launch = plan("parallel.dp_shard=2", "platform.env.MINE=1")["launch"]
    shared = {v["name"]: v["reason"] for v in launch["environment"]}

    assert all(shared.values())
    assert shared["MINE"] == "platform cpu"
    assert shared["WORLD_SIZE"] == "ranks of the job"
    assert [[v["name"] for v in rank["environment"]] for rank in launch["ranks"]] == [["RANK", "LOCAL_RANK"]] * 2


def test_the_patches_that_apply_are_told_with_the_reason(plan: Plan) -> None:
    patches = {patch["id"]: patch for patch in plan("patches.disabled=[torchtitan.cpu-memory]")["patches"]}

    assert patches["torchtitan.cpu-attention"]["status"] == "would apply"
    assert "no accelerator" in patches["torchtitan.cpu-attention"]["reason"]
    assert patches["torchtitan.cpu-memory"]["reason"] == "patches.disabled has torchtitan.cpu-memory"


def test_a_platform_that_this_machine_is_not_is_planned_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["model=llama3_8b", "platform=mi300x", "parallel.tp=4", "task=plan", "task.format=json"]
    assert run_command(argv) == 0
    view = json.loads(capsys.readouterr().out)

    assert view["layout"]["world_size"] == 8
    assert view["model"]["parameters"] == 8_030_261_248
    assert [note["key"] for note in view["notes"]] == ["platform"]
    assert "mi300x was asked for" in view["notes"][0]["what"]


def test_without_torch_and_the_backend_there_is_still_a_plan(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    real = metadata.version

    def version(name: str) -> str:
        if name in ("torch", "torchtitan"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    view = plan()

    assert view["backend"]["version"] is None
    assert "torchtitan is not installed" in view["notes"][0]["what"]
    assert {v["name"] for v in view["launch"]["environment"]} >= {"KINETO_LOG_LEVEL", "RANK"}


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("parallel.tp=3",), "parallel.tp"),
        (("backend.config.training.gc_freqq=1",), "gc_freqq"),
        (("data=text", "data.path=nowhere"), "data.path"),
        (("patches.disabled=[nothing-like-it]",), "patches.disabled"),
        (("env.RANK=1",), "env.RANK"),
    ],
)
def test_what_the_user_must_mend_is_refused_as_training_would(
    overrides: tuple[str, ...], key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*TINY, "task=plan", *overrides]) == 2
    told = capsys.readouterr()
    assert (key in told.err, told.out) == (True, "")


def test_where_the_run_stands_is_told(plan: Plan, folder: Path) -> None:
    assert plan("run.name=x")["run"]["standing"] == "new"

    root = folder / "runs" / "x"
    (root / "attempts" / "1").mkdir(parents=True)
    assert (plan("run.name=x")["run"]["standing"], plan("run.name=x")["run"]["attempt"]) == ("restart", 2)

    state = {"status": "finished", "step": 4, "steps": 4, "attempt": 1, "started_at": 0.0, "updated_at": 0.0}
    (root / "state.json").write_text(json.dumps(state))
    run = plan("run.name=x", "training.steps=4")["run"]
    assert (run["standing"], run["step"], run["attempt"]) == ("finished", 4, 1)
    assert plan("run.name=x", "training.steps=5")["run"]["standing"] == "restart"
    assert plan("run.name=x", "run.fresh=true")["run"]["name"] == "x-2"


def test_a_run_that_may_not_go_on_is_planned_and_then_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = compose(Request(overrides=[*TINY, "run.name=x", "optimizer.lr=0.5"]))
    root = folder / "runs" / "x"
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(json.dumps(before.tree))

    assert run_command([*TINY, "run.name=x", "task=plan"]) == 2

    told = capsys.readouterr()
    assert "refused" in told.out
    assert "optimizer.lr: 0.5 -> 0.002" in told.err


def test_a_must_without_a_checkpoint_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*TINY, "resume=must", "task=plan"]) == 2
    assert "no complete checkpoint" in capsys.readouterr().err


def test_a_sweep_is_planned_point_by_point_as_one_list(plan: Plan) -> None:
    views = plan("-m", "run.name=s", "optimizer.lr=1e-3,2e-3")

    assert [view["point"] for view in views] == [["optimizer.lr=0.001"], ["optimizer.lr=0.002"]]
    assert len({view["run"]["directory"] for view in views}) == 2
    assert all(view["run"]["name"].startswith("s/") for view in views)


def test_wrong_points_of_a_planned_sweep_are_all_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*TINY, "-m", "task=plan", "data=text", "data.path=nowhere_1,nowhere_2"]) == 2
    told = capsys.readouterr().err
    assert "nowhere_1" in told
    assert "nowhere_2" in told


@pytest.mark.parametrize("format", ["text", "markdown"])
def test_the_forms_for_people_hold_what_the_json_holds(
    format: str, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ("parallel.dp_shard=2", "run.name=shown", "env.ODD=a|b c")
    view = plan(*job)
    assert run_command([*TINY, "task=plan", f"task.format={format}", *job]) == 0
    text = capsys.readouterr().out.replace("\\|", "|")

    for line in view["values"]:
        assert line["key"] in text
        assert line["source"] in text
    for variable in view["launch"]["environment"]:
        assert variable["name"] in text
        assert variable["value"] in text
        assert variable["reason"] in text
    for patch in view["patches"]:
        assert (patch["why"] in text) == (patch["status"] != "skipped")
    assert " ".join(view["launch"]["argv"]) in text


def test_many_ranks_are_shown_in_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["model=llama3_8b", "platform=mi300x", "platform.gpus_per_node=64", "task=plan", "task.show=run"]
    assert run_command(argv) == 0
    text = capsys.readouterr().out

    assert "RANK=15" in text
    assert "RANK=16" not in text
    assert "and 48 more" in text
