"""Hooks of an attempt: what they are told, what they hand on, and what stops a launch."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.errors import UserError
from primus_hydra.hooks.context import Outcome
from primus_hydra.hooks.entry import Hook
from primus_hydra.hooks.exchange import check_functions
from primus_hydra.hooks.record import read_values
from primus_hydra.hooks.runner import HookRunner, PhaseEnd
from primus_hydra.hooks.values import HookValues, HookVariable
from primus_hydra.run.paths import RunPaths

Make = Callable[..., Hook]


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "run")


@pytest.fixture
def script(tmp_path: Path) -> Make:
    """Make a hook of shell lines."""

    def make(text: str, name: str = "prepare", **given: Any) -> Hook:
        file = tmp_path / f"{name}.sh"
        file.write_text(text)
        arguments = {"phase": "pre_launch", "key": "hooks.pre_launch[0]", "timeout_s": 20.0, **given}
        return Hook(name=name, script=file, **arguments)

    return make


def function(name: str, *, phase: Any = "pre_launch", timeout_s: float = 20.0, **arguments: Any) -> Hook:
    target = {"_target_": f"user_hooks.{name}", **arguments}
    return Hook(phase=phase, key=f"hooks.{phase}[0]", name=name, timeout_s=timeout_s, target=target)


@pytest.fixture
def run(paths: RunPaths, environment: dict[str, str]) -> Callable[..., PhaseEnd]:
    """Run one phase with the given hooks."""

    def phase(*hooks: Hook, values: HookValues | None = None, **given: Any) -> PhaseEnd:
        job_environment = given.pop("job_environment", {})
        outcome = given.pop("outcome", None)
        runner = HookRunner(
            hooks,
            paths=paths,
            attempt=3,
            environment=environment,
            job_environment=job_environment,
            python=[sys.executable],
            **given,
        )
        return runner.run(hooks[0].phase, values, outcome)

    return phase


def record(paths: RunPaths) -> Any:
    return json.loads(paths.attempt(3).hooks(0).read_text())


def test_a_script_sets_values_and_the_rest_of_its_words_goes_to_the_log(paths, script, run):
    end = run(script('echo env.A="$1"; echo extra.x.rows=12; echo hello; echo oh >&2', args=("a b",)))
    assert end.failed == ()
    assert end.exit_code == 0
    assert end.values.environment == {"A": "a b"}
    assert end.values.extra == {"x": {"rows": 12}}
    assert sorted(paths.hooks_log(0).read_text().splitlines()) == ["[prepare] hello", "[prepare] oh"]


def test_the_record_tells_of_each_hook(paths, script, run):
    run(script("echo env.A=1", name="first"), script("exit 2", name="second"), script("exit 7", name="third"))
    assert [(h["name"], h["result"], h["code"], h["set"]) for h in record(paths)["hooks"]] == [
        ("first", "done", 0, ["A"]),
        ("second", "skipped", 0, []),
        ("third", "failed", 7, []),
    ]
    assert all(hook["seconds"] > 0 for hook in record(paths)["hooks"])
    assert read_values(paths.attempt(3).hooks(0), "pre_launch").environment == {"A": "1"}
    assert read_values(paths.attempt(3).hooks(0), "pre_train") == HookValues()


def test_later_hooks_see_what_earlier_ones_set_and_the_job_s_env_wins(script, run):
    before = HookValues(variables=(HookVariable(name="EARLY", value="1", hook="x"),), extra={"a": 1})
    end = run(
        script("echo env.A=1; echo env.B=1; echo extra.b=2", name="first"),
        script('echo "env.SEEN=$EARLY $A $B $PRIMUS_EXTRA"', name="second"),
        values=before,
        job_environment={"B": "job"},
    )
    assert end.values.environment["SEEN"] == '1 1 job {"a": 1, "b": 2}'
    assert set(end.set.environment) == {"A", "B", "SEEN"}


def test_a_hook_is_told_where_it_stands(paths, script, run):
    names = ("RUN_DIR", "ATTEMPT", "HOOK_PHASE", "HOOK_NAME", "HOOK_NODE", "HOOK_NODES", "HOOK_STATUS")
    text = f'echo "env.TOLD={" ".join(f"$PRIMUS_{name}" for name in names)}"'
    told = run(script(text, phase="pre_train"), node=1, nodes=2).values.environment["TOLD"]
    assert told == f"{paths.root} 3 pre_train prepare 1 2 "
    assert paths.attempt(3).hooks(1).exists()
    assert paths.hooks_log(1).exists()


def test_a_hook_after_the_ranks_is_told_how_they_ended(script, run):
    text = 'echo "env.TOLD=$PRIMUS_HOOK_STATUS $PRIMUS_HOOK_EXIT_CODE $PRIMUS_HOOK_STEP"'
    outcome = Outcome(status="failed", exit_code=9, step=40)
    assert run(script(text, phase="post_train"), outcome=outcome).values.environment["TOLD"] == "failed 9 40"


@pytest.mark.parametrize(
    ("text", "code", "result", "message"),
    [
        ("exit 7", 7, "failed", "exit code 7"),
        ("exit 75", 75, "failed", "exit code 75"),
        ("kill -9 $$", 137, "failed", "killed by SIGKILL"),
        ("sleep 60", 124, "timed out", "longer than 0.5 s"),
        ("echo env.RANK=1", 2, "failed", "env.RANK: this variable is set by the launcher"),
    ],
)
def test_a_script_that_fails_stops_the_launch_with_its_code(paths, script, run, text, code, result, message):
    end = run(script(f"echo why; {text}", timeout_s=0.5 if "sleep" in text else 20.0), script("echo more", name="b"))
    (failed,) = end.failed
    assert (end.exit_code, failed.result) == (code, result)
    assert message in failed.message
    assert failed.tail == ("why",)
    assert end.values == HookValues()
    assert len(record(paths)["hooks"]) == 1


def test_after_the_ranks_every_hook_gets_its_turn(paths, script, run):
    end = run(script("exit 1", phase="post_train"), script("echo here", name="b", phase="post_train"))
    assert [hook["result"] for hook in record(paths)["hooks"]] == ["failed", "done"]
    assert [failed.name for failed in end.failed] == ["prepare"]


def test_a_script_that_cannot_be_started_says_so(paths, tmp_path, run):
    file = tmp_path / "odd"
    file.write_text("#!/no/such/interpreter\n")
    file.chmod(0o755)
    end = run(Hook(phase="pre_launch", key="x", name="odd", timeout_s=20, script=file))
    assert end.exit_code == 126
    assert "cannot be started" in end.failed[0].tail[-1]


def test_an_executable_without_an_interpreter_is_given_to_the_shell(tmp_path, run):
    file = tmp_path / "plain"
    file.write_text("echo env.A=$1\n")
    file.chmod(0o755)
    end = run(Hook(phase="pre_launch", key="x", name="plain", timeout_s=20, script=file, args=("1",)))
    assert end.values.environment == {"A": "1"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_stops_the_launch(paths, script, run, number, code):
    threading.Timer(0.5, lambda: os.kill(os.getpid(), number)).start()
    end = run(script("sleep 60"), script("echo more", name="b"))
    assert (end.exit_code, end.signal) == (code, number)
    assert [hook["result"] for hook in record(paths)["hooks"]] == ["stopped"]


def test_a_function_gets_its_arguments_and_the_context(paths, run):
    end = run(function("tell", rows=12, phase="post_train"), outcome=Outcome(status="saved", exit_code=75, step=4))
    assert end.failed == ()
    assert end.values.environment == {"ROWS": "12"}  # what it prints is only text
    assert end.values.extra == {"hook": {"rows": 12}}
    said = "post_train 3 Outcome(status='saved', exit_code=75, step=4)"
    assert paths.hooks_log(0).read_text().splitlines() == [f"[tell] {said} ", "[tell] env.PRINTED=1"]


def test_arguments_of_a_function_may_be_built_by_functions(run):
    end = run(function("build", part={"_target_": "user_hooks.part", "name": "x"}))
    assert end.values.extra == {"part": "X"}


@pytest.mark.parametrize(
    ("how", "value", "code", "result", "message"),
    [
        ("skip", "not needed", 0, "skipped", "not needed"),
        ("exit", 0, 0, "done", ""),
        ("exit", 2, 0, "skipped", ""),
        ("exit", 9, 9, "failed", "exit code 9"),
        ("quietly", 5, 5, "failed", "exit code 5"),
        ("signal", 9, 137, "failed", "killed by SIGKILL"),
        ("user", "no such table", 2, "failed", "no such table"),
        ("host", "no disk", 3, "failed", "no disk"),
        ("bug", "x", 1, "failed", "KeyError: 'x'"),
        ("sleep", 60, 124, "timed out", "longer than"),
        ("return", 3, 2, "failed", "returned a int"),
        ("return", {"env.RANK": "1"}, 2, "failed", "set by the launcher"),
    ],
)
def test_the_end_of_a_function_is_told_as_that_of_a_script(paths, run, how, value, code, result, message):
    end = run(function("end", how=how, value=value, timeout_s=2.0 if how == "sleep" else 20.0))
    assert end.exit_code == code
    (said,) = record(paths)["hooks"]
    assert said["result"] == result
    assert message in said["message"]
    log = paths.hooks_log(0).read_text()
    assert ("Traceback" in log) == (how == "bug")


def test_a_phase_without_hooks_leaves_nothing(paths, script, run, environment):
    runner = HookRunner(
        [script("exit 1")], paths=paths, attempt=3, environment={}, job_environment={}, python=[sys.executable]
    )
    assert runner.run("post_train") == PhaseEnd(set=HookValues(), values=HookValues())
    assert not paths.root.exists()


def test_functions_are_checked_together_before_anything_starts(environment):
    good = [function("tell", rows=1), function("nothing", phase="pre_train")]
    check_functions(good, [sys.executable], environment)
    bad = [
        function("tell", phase="pre_launch"),
        function("nothing", phase="pre_train", rows=3),
        function("uplaod", phase="post_train"),
    ]
    with pytest.raises(UserError) as raised:
        check_functions([*good, *bad], [sys.executable], environment)
    # One process for all of them; two entries with one key are one here.
    assert [problem.key for problem in raised.value.problems] == [
        "hooks.pre_launch[0]",
        "hooks.pre_train[0]",
        "hooks.post_train[0]._target_",
    ]


def test_a_check_without_functions_starts_no_process(script):
    check_functions([script("exit 1")], ["/no/such/python"], {})
