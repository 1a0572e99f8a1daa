"""Which packages a `_target_` may name: this one, and those that installed packages declare in code.

A package declares itself by an entry point of the group `primus_hydra.targets`, whose value is a module prefix.
Refuses a prefix outside the declaring distribution's own top-level packages: a plugin cannot open `os` or `torch`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import PurePosixPath

ENTRY_POINT_GROUP = "primus_hydra.targets"
OWN_PACKAGE = "primus_hydra"


@dataclass(frozen=True, kw_only=True)
class AllowList:
    """Module prefixes that a `_target_` may name, and the declarations that were refused, with the reason."""

    prefixes: tuple[str, ...] = (OWN_PACKAGE,)
    refused: tuple[str, ...] = ()

    def allows(self, name: str) -> bool:
        """Whether a dotted name lies at or below an allowed prefix."""
        return any(name == prefix or name.startswith(f"{prefix}.") for prefix in self.prefixes)


@functools.cache
def installed_allow_list() -> AllowList:
    """Read the declarations of what is installed, once per process."""
    return allow_list_of(entry_points(group=ENTRY_POINT_GROUP))


def allow_list_of(declarations: Iterable[EntryPoint]) -> AllowList:
    """Judge declarations; each is allowed or refused on its own."""
    prefixes, refused = [OWN_PACKAGE], []
    for entry in declarations:
        fault = _fault(entry)
        if fault is None:
            prefixes.append(entry.value)
        else:
            refused.append(f"{entry.name} = {entry.value}: {fault}")
    return AllowList(prefixes=tuple(dict.fromkeys(prefixes)), refused=tuple(refused))


def _fault(entry: EntryPoint) -> str | None:
    if not all(part.isidentifier() for part in entry.value.split(".")):
        return "the value must be a module prefix such as my_package.tasks"
    if entry.dist is None:
        return "it is not known which package declares it"
    top_level = entry.value.partition(".")[0]
    if top_level not in _top_level_packages(entry.dist):
        return f"{top_level} is not a package of {entry.dist.name}, which declares it"
    return None


def _top_level_packages(distribution: Distribution) -> set[str]:
    """Names that a distribution installs; an editable install may list none, then its own name counts."""
    listed = set((distribution.read_text("top_level.txt") or "").split())
    installed = {_top_level(PurePosixPath(str(file))) for file in distribution.files or ()} - {""}
    return listed | installed or {distribution.name.replace("-", "_").lower()}


def _top_level(file: PurePosixPath) -> str:
    if file.suffix != ".py":
        return ""
    name = file.parts[0] if len(file.parts) > 1 else file.stem
    return name if name.isidentifier() and not name.startswith("__editable__") else ""
