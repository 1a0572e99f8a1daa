"""A process of its own for hooks that are functions: `python -m primus_hydra.hooks.call (run|check) REQUEST REPLY`.

REQUEST and REPLY are descriptors of files that hold JSON. `run` calls the function of one entry; `check` only looks
whether functions are there and take the arguments that the entries give, so that a slip in the last hook of a run is
found before the first rank starts.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from primus_hydra.config.instantiate import TARGET, safe_instantiate
from primus_hydra.errors import PrimusError, Problem, UserError
from primus_hydra.hooks.context import HookContext, Skip
from primus_hydra.hooks.values import Collector
from primus_hydra.runtime.tether import PARENT_VARIABLE, die_with_parent

CONTEXT_ARGUMENT = "hook"
"""Name of the argument by which a function asks for the context."""


def main(argv: Sequence[str]) -> int:
    """Do what the request asks, and write the reply."""
    die_with_parent()
    os.environ.pop(PARENT_VARIABLE, None)
    act, request, reply = argv[0], int(argv[1]), int(argv[2])
    with os.fdopen(request, encoding="utf-8") as file:
        asked = json.load(file)
    answer = check(asked) if act == "check" else call(asked)
    sys.stdout.flush()
    with os.fdopen(reply, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    return 1 if "failed" in answer else 0


def call(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Call the function of an entry; return its values, why it was skipped, or how it failed."""
    context = HookContext.of(os.environ)
    collector = Collector(context.name)
    try:
        more: dict[str, Any] = {CONTEXT_ARGUMENT: context} if _wants_context(_function(entry)) else {}
        collector.mapping(safe_instantiate(entry, **more))
    except Skip as skip:
        return {"skipped": str(skip)}
    except PrimusError as error:
        print(error, file=sys.stderr)
        return {"failed": str(error), "code": int(error.exit_code)}
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}", "code": 1}
    problems = [{"key": problem.key, "what": problem.what} for problem in collector.problems]
    return {"values": collector.values.to_json(), "problems": problems}


def check(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is wrong with the functions of entries, which are given by key."""
    problems: list[Problem] = []
    for key, entry in entries.items():
        try:
            problems += _argument_problems(key, entry)
        except PrimusError as error:
            problems += [Problem(key=f"{key}.{TARGET}", what=problem.what) for problem in error.problems]
        except Exception as error:
            traceback.print_exc()
            what = f"{entry[TARGET]} cannot be imported: {type(error).__name__}: {error}"
            problems.append(Problem(key=f"{key}.{TARGET}", what=what))
    return {"problems": [{"key": problem.key, "what": problem.what} for problem in problems]}


def _argument_problems(key: str, entry: Mapping[str, Any]) -> list[Problem]:
    function = _function(entry)
    names = [name for name in entry if not (name.startswith("_") and name.endswith("_"))]
    more = {CONTEXT_ARGUMENT: None} if _wants_context(function) else {}
    try:
        inspect.signature(function).bind(*entry.get("_args_", ()), **dict.fromkeys(names), **more)
    except TypeError as error:
        return [Problem(key=key, what=f"{entry[TARGET]} cannot be called with these arguments: {error}")]
    return []


def _function(entry: Mapping[str, Any]) -> Callable[..., Any]:
    """Import the function of an entry, and every function in its arguments; raises UserError or HostError."""
    found = safe_instantiate({**entry, "_partial_": True, "_recursive_": False})
    if not callable(getattr(found, "func", None)):
        raise UserError(Problem(key=TARGET, what=f"{entry[TARGET]} is no function"))
    function: Callable[..., Any] = found.func
    return function


def _wants_context(function: Callable[..., Any]) -> bool:
    return CONTEXT_ARGUMENT in inspect.signature(function).parameters


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
