"""Which classes a `_target_` below `backend.config` may name: the backend's own, and those of allowed packages."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any

from primus_hydra.config.allow import installed_allow_list
from primus_hydra.config.instantiate import load_target
from primus_hydra.errors import Problem, UserError


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The rules for one backend: its name in messages, and the package whose classes need no declaration, if any.

    `hint` says which class to name instead of one that is no dataclass.
    """

    backend: str
    package: str | None = None
    hint: str | None = None

    def check_name(self, name: str) -> None:
        """Raise UserError if a class may not be named, judged without importing anything."""
        if not (self._is_own(name) or installed_allow_list().allows(name)):
            what = f"{name} is refused: {name.partition('.')[0]} is not a package that a configuration may name"
            declared = "a package that declares itself"
            hint = (
                f"name a class of {self.backend}, or of {declared}" if self.package else f"name a class of {declared}"
            )
            raise UserError(Problem(what=what, hint=hint))

    def load(self, name: str) -> type[Any]:
        """Import a configuration class; raises UserError if it may not be named, is missing or is no dataclass."""
        self.check_name(name)
        found = self._load_own(name) if self._is_own(name) else load_target(name, object)
        if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
            raise UserError(Problem(what=f"{name} is not a configuration class", hint=self.hint))
        return found

    def _is_own(self, name: str) -> bool:
        return self.package is not None and name.startswith(f"{self.package}.")

    def _load_own(self, name: str) -> Any:
        parts = name.split(".")
        for depth in range(len(parts) - 1, 0, -1):
            try:
                found: Any = importlib.import_module(".".join(parts[:depth]))
            except ModuleNotFoundError:
                continue
            for part in parts[depth:]:
                found = getattr(found, part, None)
            # A module of the backend also shows what it imports; only what the backend itself defines counts.
            if getattr(found, "__module__", "").partition(".")[0] == self.package:
                return found
            break
        raise UserError(Problem(what=f"{self.backend} has no {name}"))
