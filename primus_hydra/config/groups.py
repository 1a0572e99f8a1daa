"""The groups and options on the search path, as a person may name them on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hydra._internal.config_repository import ConfigRepository
from hydra.core.object_type import ObjectType

from primus_hydra.config.sources import FolderSource


@dataclass(frozen=True)
class Groups:
    """Groups and options of one search path; names that begin with `_` are internal and stay hidden."""

    repository: ConfigRepository

    def has(self, group: str) -> bool:
        """Whether `group` is a config group."""
        return self.repository.group_exists(group)

    def names(self) -> list[str]:
        """Return the top-level groups of this project and of the user."""
        found = self.repository.get_group_options("", results_filter=ObjectType.GROUP)
        return [name for name in found if not name.startswith(("_", "hydra"))]

    def options(self, group: str) -> list[str]:
        """Return the options of a group."""
        found = self.repository.get_group_options(group, results_filter=ObjectType.CONFIG)
        return [name for name in found if not name.startswith("_")]

    def unseen(self, group: str, option: str) -> Path | None:
        """Return a file that looks like the option but that Hydra does not read (`.yml`), or None."""
        for source in self.repository.get_sources():
            if isinstance(source, FolderSource):
                candidate = source.folder / group / f"{option.removesuffix('.yml')}.yml"
                if candidate.is_file():
                    return candidate
        return None
