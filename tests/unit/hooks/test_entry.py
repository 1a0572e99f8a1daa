"""Entries of `hooks.*` become hooks, or say what is wrong with them before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.identity import default_name
from primus_hydra.config.schema import HooksConfig
from primus_hydra.hooks.entry import read_hooks


def read(*entries: dict[str, Any], check_paths: bool = False):
    return read_hooks(HooksConfig(pre_launch=list(entries)), check_paths=check_paths)


def test_a_script_has_its_file_s_name_and_the_common_time_unless_it_says_its_own():
    (plain, own), problems = read(
        {"script": "/x/prepare.sh"}, {"script": "/x/prepare.sh", "args": ["-n", ""], "name": "data", "timeout_s": 5}
    )
    assert problems == []
    assert (plain.name, plain.timeout_s, plain.args) == ("prepare.sh", 600, ())
    assert (own.name, own.timeout_s, own.args) == ("data", 5, ("-n", ""))


def test_a_function_has_its_own_name_and_all_other_keys_are_its_arguments():
    (hook,), problems = read({"_target_": "primus_hydra.somewhere.upload", "name": "x", "rows": 3})
    assert problems == []
    assert (hook.name, hook.what) == ("upload", "primus_hydra.somewhere.upload()")
    assert hook.target == {"_target_": "primus_hydra.somewhere.upload", "name": "x", "rows": 3}


@pytest.mark.parametrize(
    ("entry", "key", "what"),
    [
        ({}, "hooks.pre_launch[0]", "neither a script nor a function"),
        ({"script": ""}, "hooks.pre_launch[0].script", "path of a file"),
        ({"script": "a.sh", "timeout": 3}, "hooks.pre_launch[0].timeout", "no such key"),
        ({"script": "a.sh", "timeout_s": 0}, "hooks.pre_launch[0].timeout_s", "greater than 0"),
        ({"script": "a.sh", "timeout_s": "1h"}, "hooks.pre_launch[0].timeout_s", "greater than 0"),
        ({"script": "a.sh", "args": "-v"}, "hooks.pre_launch[0].args", "list of text"),
        ({"script": "a.sh", "args": [100]}, "hooks.pre_launch[0].args", "put numbers in quotes"),
        ({"script": "a.sh", "args": ["a\0b"]}, "hooks.pre_launch[0].args", "list of text"),
        ({"_target_": "os.system", "command": "id"}, "hooks.pre_launch[0]._target_", "os.system is refused"),
        ({"_target_": "primus_hydra.x.f", "a": {"_target_": "os.remove"}}, "hooks.pre_launch[0].a._target_", "refused"),
    ],
)
def test_a_wrong_entry_is_a_problem_at_its_key(entry, key, what):
    hooks, problems = read(entry)
    assert hooks == []
    assert [problem.key for problem in problems] == [key]
    assert what in problems[0].what


def test_scripts_are_looked_for_when_paths_are_checked(tmp_path: Path):
    there, shell, text = tmp_path / "a", tmp_path / "b.sh", tmp_path / "c.py"
    for file in (there, shell, text):
        file.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    entries = [{"script": str(path)} for path in (there, shell, text, tmp_path / "none.sh", tmp_path)]
    assert read(*entries)[1] == []
    problems = read(*entries, check_paths=True)[1]
    assert [(problem.key, problem.hint) for problem in problems] == [
        ("hooks.pre_launch[2].script", f"chmod +x {text}"),
        ("hooks.pre_launch[3].script", "launch.check_paths=false leaves this to the nodes"),
        ("hooks.pre_launch[4].script", "launch.check_paths=false leaves this to the nodes"),
    ]


def test_scripts_are_absolute_and_hooks_do_not_change_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    plain = compose(Request(overrides=["platform=cpu"]))
    hooked = compose(Request(overrides=["platform=cpu", "hooks.post_train=[{script:up.sh,args:['012']}]"]))
    assert hooked.job.hooks.post_train == [{"script": str(tmp_path / "up.sh"), "args": ["012"]}]
    assert default_name(plain.tree) == default_name(hooked.tree)
