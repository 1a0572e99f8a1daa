"""Which configuration classes a `_target_` below `backend.config` may name: torchtitan's own, and allowed packages'."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from primus_hydra.config.allow import installed_allow_list
from primus_hydra.config.instantiate import load_target
from primus_hydra.errors import Problem, UserError

_BACKEND = "torchtitan"


def check_name(name: str) -> None:
    """Raise UserError if a class may not be named, judged without importing anything."""
    if not (_is_titan(name) or installed_allow_list().allows(name)):
        what = f"{name} is refused: {name.partition('.')[0]} is not a package that a configuration may name"
        raise UserError(Problem(what=what, hint="name a class of torchtitan, or of a package that declares itself"))


def load_config_class(name: str) -> type[Any]:
    """Import a configuration class; raises UserError if it may not be named, is missing or is no dataclass."""
    check_name(name)
    found = _load_titan(name) if _is_titan(name) else load_target(name, object)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise UserError(Problem(what=f"{name} is not a configuration class", hint="name the nested class: ....Config"))
    return found


def _is_titan(name: str) -> bool:
    return name.startswith(f"{_BACKEND}.")


def _load_titan(name: str) -> Any:
    parts = name.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            continue
        for part in parts[depth:]:
            found = getattr(found, part, None)
        # A module of torchtitan also shows what it imports; only what torchtitan itself defines counts.
        if getattr(found, "__module__", "").partition(".")[0] == _BACKEND:
            return found
        break
    raise UserError(Problem(what=f"torchtitan has no {name}"))
