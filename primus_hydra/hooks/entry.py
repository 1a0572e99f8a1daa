"""The entries of `hooks.*` as hooks: what each runs, its name and its time. Nothing is run or imported here.

Refused: an entry that is neither a script nor a function, unknown keys, arguments that are no text, a script that is
not there or cannot be run, and a function outside the allowed packages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from primus_hydra.config.instantiate import TARGET, target_problems
from primus_hydra.config.schema import HooksConfig
from primus_hydra.config.suggest import did_you_mean
from primus_hydra.errors import Problem

Phase = Literal["pre_launch", "pre_train", "post_train"]
PHASES: tuple[Phase, ...] = get_args(Phase)

_SCRIPT_KEYS = ("script", "args", "name", "timeout_s")


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One hook: either a script with arguments, or `target`, the `_target_` node of a function. `key` is its entry."""

    phase: Phase
    key: str
    name: str
    timeout_s: float
    script: Path | None = None
    args: tuple[str, ...] = ()
    target: Mapping[str, Any] | None = None

    @property
    def what(self) -> str:
        """What is run, for a person."""
        return " ".join([str(self.script), *self.args]) if self.target is None else f"{self.target[TARGET]}()"


def read_hooks(config: HooksConfig, *, check_paths: bool = False) -> tuple[list[Hook], list[Problem]]:
    """Return the hooks of a job in their order, and everything that is wrong with the entries.

    `check_paths` looks whether the scripts are there; without it nothing on disk is looked at.
    """
    hooks: list[Hook] = []
    problems: list[Problem] = []
    for phase in PHASES:
        for index, entry in enumerate(getattr(config, phase)):
            key = f"hooks.{phase}[{index}]"
            wrong = _entry_problems(entry, key)
            if not wrong:
                hook = _hook(entry, phase, key, config.timeout_s)
                hooks.append(hook)
                wrong = _script_problems(hook.script, key) if check_paths and hook.script is not None else []
            problems += wrong
    return hooks, problems


def _hook(entry: Mapping[str, Any], phase: Phase, key: str, timeout_s: float) -> Hook:
    if TARGET in entry:
        name = str(entry[TARGET]).rpartition(".")[2]
        return Hook(phase=phase, key=key, name=name, timeout_s=timeout_s, target=entry)
    script = Path(entry["script"])
    return Hook(
        phase=phase,
        key=key,
        name=entry.get("name") or script.name,
        timeout_s=float(entry.get("timeout_s", timeout_s)),
        script=script,
        args=tuple(entry.get("args", ())),
    )


def _entry_problems(entry: Mapping[str, Any], key: str) -> list[Problem]:
    if TARGET in entry:
        return target_problems(entry, key)  # every other key is the function's
    if "script" not in entry:
        hint = "write {script: FILE} or {_target_: my_package.my_function}"
        return [Problem(key=key, what="this is neither a script nor a function", hint=hint)]
    problems = [
        Problem(key=f"{key}.{name}", what="there is no such key", hint=did_you_mean(name, _SCRIPT_KEYS))
        for name in entry
        if name not in _SCRIPT_KEYS
    ]
    checks = (
        ("script", _is_text(entry["script"]) and entry["script"] != "", "expects the path of a file"),
        ("name", _is_text(entry.get("name", "")), "expects text"),
        ("timeout_s", _is_time(entry.get("timeout_s", 1)), "expects seconds, greater than 0"),
        ("args", _are_texts(entry.get("args", [])), "expects a list of text: put numbers in quotes"),
    )
    return problems + [Problem(key=f"{key}.{name}", what=what) for name, good, what in checks if not good]


def _script_problems(script: Path, key: str) -> list[Problem]:
    if not script.is_file():
        what, hint = f"there is no file {script}", "launch.check_paths=false leaves this to the nodes"
    elif not is_shell_file(script) and not os.access(script, os.X_OK):
        what, hint = f"{script} is not executable", f"chmod +x {script}"
    else:
        return []
    return [Problem(key=f"{key}.script", what=what, hint=hint)]


def is_shell_file(script: Path) -> bool:
    """Whether a file is run by bash even without a mode that says so."""
    return script.suffix in (".sh", ".bash")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(_is_text(item) for item in value)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
