"""Imports the patch modules of one backend, so that they register themselves.

Ours lie in `primus_hydra.patches.<backend>`; those for every backend in `primus_hydra.patches.common`. Packages
outside add theirs by an entry point of the group `primus_hydra.patches` whose name is the backend (or `common`).
Refuses a patch module that imports torch or the backend when it is imported: a patch of phase `before_import` would
come too late, and listing the patches would take seconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from primus_hydra.errors import HostError, Problem
from primus_hydra.patching.registry import PatchDefinitionError

ENTRY_POINT_GROUP = "primus_hydra.patches"
COMMON = "common"
_PACKAGE = "primus_hydra.patches"


def load_patches(backend: str) -> tuple[str, ...]:
    """Import every patch module for a backend, and return their names; a second call changes nothing.

    Raises HostError for an entry point that cannot be imported, PatchDefinitionError for a module that imports torch or
    the backend; what one of our own modules raises passes through.
    """
    loaded: list[str] = []
    for name in (COMMON, backend):
        if _exists(name):
            loaded.extend(_import_tree(f"{_PACKAGE}.{name}", backend))
        for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
            _load_entry(entry, backend)
            loaded.append(entry.module)
    return tuple(loaded)


def _exists(name: str) -> bool:
    return name.isidentifier() and importlib.util.find_spec(f"{_PACKAGE}.{name}") is not None


def _import_tree(module: str, backend: str) -> Iterator[str]:
    _import_light(module, backend)
    yield module
    for child in pkgutil.iter_modules(getattr(sys.modules[module], "__path__", []), prefix=f"{module}."):
        yield from _import_tree(child.name, backend)


def _import_light(module: str, backend: str) -> None:
    heavy_before = _heavy(backend)
    importlib.import_module(module)
    if new := _heavy(backend) - heavy_before:
        raise PatchDefinitionError(
            f"patch module {module} imports {', '.join(sorted(new))} when it is imported; "
            "import it inside the patch function"
        )


def _heavy(backend: str) -> set[str]:
    return {name for name in ("torch", backend) if name in sys.modules}


def _load_entry(entry: EntryPoint, backend: str) -> None:
    try:
        _import_light(entry.module, backend)
    except ImportError as error:
        owner = entry.dist.name if entry.dist else "an unknown package"
        raise HostError(
            Problem(
                what=f"the patches of {owner} cannot be imported: {error}",
                where=f"entry point {entry.name} = {entry.value} of group {ENTRY_POINT_GROUP}",
                hint=f"mend or uninstall {owner}",
            )
        ) from error
