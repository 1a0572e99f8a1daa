"""Where descriptions of classes come from: a data file (no import of the backend) or the real classes (in a rank)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_hydra.native.describe import describe_class
from primus_hydra.native.targets import Targets


class FileCatalog:
    """Knows the classes of a data file."""

    def __init__(self, classes: Mapping[str, Any], targets: Targets) -> None:
        self._classes = classes
        self._targets = targets

    def find(self, name: str) -> Mapping[str, Any] | None:
        """Return the description of a class, None if the file has none; raises UserError if it is not allowed."""
        if name not in self._classes:
            self._targets.check_name(name)
        return self._classes.get(name)


class LiveCatalog:
    """Describes classes that can be imported; `known` ones need no import and no permission."""

    def __init__(self, known: Mapping[str, type[Any]], targets: Targets) -> None:
        self._known = known
        self._targets = targets

    def find(self, name: str) -> Mapping[str, Any]:
        """Return the description of a class; raises UserError if there is none of this name that may be used."""
        return describe_class(self.load(name))

    def load(self, name: str) -> type[Any]:
        """Return a configuration class; raises UserError if there is none of this name that may be used."""
        return self._known.get(name) or self._targets.load(name)
