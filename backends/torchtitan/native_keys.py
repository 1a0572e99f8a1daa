"""Check `backend.config` before anything is launched, against the data file of a torchtitan version; no torch needed.

Refuses keys that a neutral key owns, keys that the version does not have, and values of a wrong type. A `_target_`
from another allowed package cannot be looked into here; the rank checks it against the real class.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

from primus_hydra.backends.torchtitan.owned_0_3 import OWNED
from primus_hydra.backends.torchtitan.versions import RELEASES, release_for
from primus_hydra.errors import Problem
from primus_hydra.native import owned
from primus_hydra.native.catalog import FileCatalog
from primus_hydra.native.check import Checker
from primus_hydra.native.targets import Targets

TARGETS = Targets(backend="torchtitan", package="torchtitan", hint="name the nested class: ....Config")
KEEP = frozenset({"", "metrics", "checkpoint"})
"""Paths whose implementation must derive from ours: without it nothing would be reported, or no checkpoint marked."""


def check_native(
    config: Mapping[str, Any], version: str | None = None, *, placed: Mapping[str, str | None] | None = None
) -> list[Problem]:
    """Return everything that is wrong with native keys.

    `version` is torchtitan's, None the newest supported one. `placed` overrides which class sits at a path (None: no
    object), where that depends on the job. Raises HostError for a version that is not supported.
    """
    release = release_for(version) if version else RELEASES[-1]
    data = load_schema(release.name)
    free, problems = without_owned(config)
    checker = Checker(
        backend=TARGETS.backend,
        catalog=FileCatalog(data["classes"], TARGETS),
        placed={**data["placed"], **(placed or {})},
        keep=KEEP,
        owners=OWNED,
    )
    return problems + checker.check(free)


def without_owned(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Split off the keys that a neutral key owns: return the other keys, and a problem for each owned one."""
    return owned.without_owned(config, OWNED)


@functools.cache
def load_schema(release: str) -> dict[str, Any]:
    """Read the data file of a release: {"torchtitan": version, "placed": {path: class}, "classes": {name: ...}}."""
    file = importlib.resources.files("primus_hydra.backends.torchtitan.schema") / f"{release}.json"
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data
