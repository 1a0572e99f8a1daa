"""`task=deps`: what the chosen backend needs, what of it is installed, and the command that installs the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.table import Table

from primus_hydra.config.composed import Composed
from primus_hydra.config.schema import key
from primus_hydra.errors import ExitCode
from primus_hydra.host.packages import (
    PROJECT,
    Dependency,
    dependencies_of,
    installed_version,
    project_extras,
    project_requirements,
)
from primus_hydra.tasks.contract import Task

CORE = "core"


@dataclass(frozen=True, kw_only=True)
class DependencyGroup:
    """The packages of one extra (or of the core), and whether the chosen backend needs them."""

    name: str
    needed: bool
    dependencies: tuple[Dependency, ...]

    @property
    def complete(self) -> bool:
        """Whether every package is there in a wanted version."""
        return all(dependency.status == "ok" for dependency in self.dependencies)

    @property
    def install(self) -> str:
        """The command that installs the group."""
        return f'pip install "{PROJECT}{"" if self.name == CORE else f"[{self.name}]"}"'

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "complete": self.complete, "install": self.install}


def dependency_groups(
    requirements: Sequence[Requirement],
    extras: Sequence[str],
    backend: str,
    *,
    everything: bool,
    installed: Callable[[str], str | None] = installed_version,
) -> list[DependencyGroup]:
    """Group what is wanted: the core and the backend's extra, or every extra; the extra has the backend's name."""
    own = canonicalize_name(backend)
    shown = [extra for extra in extras if everything or canonicalize_name(extra) == own]
    names: list[tuple[str, str | None]] = [(CORE, None), *((extra, extra) for extra in shown)]
    return [
        DependencyGroup(
            name=name,
            needed=extra is None or canonicalize_name(extra) == own,
            dependencies=tuple(dependencies_of(requirements, extra, installed=installed)),
        )
        for name, extra in names
    ]


class Deps(Task):
    """Show wanted and installed versions; exit 3 if something that the chosen backend needs is not there."""

    name: ClassVar[str] = "deps"
    slurm: ClassVar[Literal["submits", "ignores"] | None] = "ignores"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=deps`."""

        all: bool = key(False, "Show every extra, not only the chosen backend's.")
        format: Literal["text", "json"] = key("text", "A table to read, or JSON for programs.")

    options: Options

    def run(self, composed: Composed) -> int:
        """Print the groups."""
        backend = composed.job.backend.name
        groups = dependency_groups(project_requirements(), project_extras(), backend, everything=self.options.all)
        if self.options.format == "json":
            print(json.dumps({"backend": backend, "groups": [group.to_json() for group in groups]}, indent=2))
        else:
            _print_table(groups, backend)
        lacking = any(group.needed and not group.complete for group in groups)
        return ExitCode.HOST if lacking else ExitCode.DONE


def _print_table(groups: Sequence[DependencyGroup], backend: str) -> None:
    console = Console()
    table = Table("extra", "package", "wanted", "installed", "status")
    for group in groups:
        for dependency in group.dependencies:
            wanted, installed = dependency.wanted or "any", dependency.installed or "-"
            table.add_row(group.name, dependency.name, wanted, installed, dependency.status)
        table.add_section()
    console.print(table)
    if not any(group.needed and group.name != CORE for group in groups):
        console.print(
            f"{PROJECT} has no extra for backend {backend}: its own package says what it needs.", markup=False
        )
    for group in groups:
        if not group.complete:
            needed = f"needed by {backend}" if group.needed else "optional"
            console.print(f"{group.name} ({needed}): {group.install}", markup=False, highlight=False, soft_wrap=True)
