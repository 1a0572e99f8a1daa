"""A backend's own keys by the names that its users write, and what each is here: for those who come with their files.

A key is said by a neutral key (its `owner`), has a `place` below `backend.config`, or is `refused` with the reason. The
same tables serve the check of `backend.config`, so that both directions have one truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from primus_hydra.native.describe import Node


@dataclass(frozen=True, kw_only=True)
class NativeKey:
    """One key. `node` is its type with the backend's default.

    `inverted`: the place means the opposite. `joined`: it takes the items of a list as text with commas. `here` is what
    stands at the place where nobody says anything, if that is not the backend's default.
    """

    node: Node
    owner: str | None = None
    place: str | None = None
    refused: str | None = None
    inverted: bool = False
    joined: bool = False
    here: Any = None

    @property
    def default(self) -> Any:
        """The backend's own default; None where it has none."""
        return self.node.get("default")

    @property
    def standing(self) -> Any:
        """What is used here when the key is left out."""
        return self.default if self.here is None else self.here

    def spelled(self, value: Any) -> Any:
        """Return a value as the place takes it."""
        if self.joined and isinstance(value, (list, tuple)):
            return ",".join(map(str, value))
        return not value if self.inverted else value


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """All keys of a backend. `source` is whose keys they are, for messages.

    `flags` are the words of its command line, each with the key that it sets and the value it stands for (None: the
    value follows). `former` are names that newer versions call otherwise.
    """

    source: str
    keys: Mapping[str, NativeKey]
    flags: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    former: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> NativeKey | None:
        """Return a key by its name, a former one too."""
        return self.keys.get(self.former.get(name, name))
