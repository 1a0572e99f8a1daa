"""What the points of a sweep have in common: groups, files, and the tree that the choices of groups make.

Points differ mostly in values. Hydra reads and merges files once for the same choices; each point gets a copy of what
came out, and its values. A file that is broken is told with the points that choose it, and with no other.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from omegaconf import DictConfig

from primus_hydra.config.detected import Expanded, expand_auto
from primus_hydra.config.groups import Groups
from primus_hydra.config.keys import facts_of
from primus_hydra.config.loader import new_loader
from primus_hydra.config.overrides import Override
from primus_hydra.config.provenance import Source, file_sources


@dataclass(frozen=True, kw_only=True)
class Base:
    """The tree of some choices of groups, before values of the command line; `files` says which file set what.

    `pickled` is the tree: reading it costs a seventh of a deep copy.
    """

    pickled: bytes
    expanded: Expanded
    files: Mapping[str, Source]
    machine_values: tuple[str, ...]


class Foundation:
    """A loader over the search path of this moment, and the trees it made. Errors are Hydra's own."""

    def __init__(self) -> None:
        self.loader = new_loader()
        self.groups = Groups(self.loader.repository)
        self._bases: dict[tuple[str, ...], Base] = {}

    def base(self, config_name: str, overrides: Sequence[Override]) -> Base:
        """Return the tree that the choices among the overrides make; made once for equal choices."""
        choices = tuple(override.for_hydra for override in overrides if is_choice(override))
        key = (config_name, *choices)
        if key not in self._bases:
            self._bases[key] = self._made(config_name, list(choices))
        return self._bases[key]

    def config(self, base: Base, overrides: Sequence[Override]) -> DictConfig:
        """Return a copy of a tree with the values among the overrides; what the machine gave comes first."""
        config = cast(DictConfig, pickle.loads(base.pickled))
        typed = [override.for_hydra for override in overrides if not is_choice(override)]
        self.loader.apply(config, [*base.machine_values, *typed])
        return config

    def _made(self, config_name: str, choices: list[str]) -> Base:
        expanded = expand_auto(self.loader, config_name, choices)
        # A count of GPUs that was found is a value, in front of those that were typed.
        found = tuple(text for text in expanded.overrides if text.partition("=")[0] in expanded.keys)
        config = self.loader.load(config_name, [text for text in expanded.overrides if text not in found])
        files = file_sources(self.loader.composed_from, self.loader.repository)
        pickled = pickle.dumps(config, pickle.HIGHEST_PROTOCOL)
        return Base(pickled=pickled, expanded=expanded, files=files, machine_values=found)


class Foundations:
    """The foundations of one command, all for the same search path: one for each set of choices of groups."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], Foundation] = {}

    def of(self, typed: Sequence[str]) -> Foundation:
        """Return the foundation for overrides as typed."""
        key = tuple(word for word in typed if not _is_plainly_a_value(word))
        if key not in self._made:
            self._made[key] = Foundation()
        return self._made[key]


def is_choice(override: Override) -> bool:
    """Whether an override has a say in which files are read: an option of a group, or one of Hydra's own keys."""
    return override.is_group or override.key.startswith(("hydra.", "hydra/"))


def _is_plainly_a_value(word: str) -> bool:
    """Whether a word sets a key below a node; one without a dot may name a group, which only a search path knows."""
    key = word.partition("=")[0].lstrip("+~")
    return "." in key and facts_of(key).kind in ("leaf", "free")
