"""Check `backend.config` before anything is launched, against the data file of a Megatron release; no torch needed.

Refuses keys that a neutral key owns, keys that are set in another section, keys that the release does not have, values
of a wrong type, and a `_target_` anywhere but in the model section. A `_target_` from another allowed package cannot be
looked into here; the rank checks it against the real class.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

from primus_hydra.backends.megatron.owned import OWNED
from primus_hydra.backends.megatron.shared_keys import SECTIONS, homes, without_shared
from primus_hydra.backends.megatron.versions import RELEASES, release_for
from primus_hydra.errors import Problem
from primus_hydra.native.catalog import FileCatalog
from primus_hydra.native.check import PREFIX, TARGET, Catalog, Checker
from primus_hydra.native.describe import Node
from primus_hydra.native.owned import without_owned
from primus_hydra.native.targets import Targets

TARGETS = Targets(backend="megatron", hint="derive a dataclass from primus_hydra.backends.megatron.sections.GptModel")


def check_native(
    config: Mapping[str, Any], version: str | None = None, *, mla: bool, has_dataset: bool
) -> list[Problem]:
    """Return everything that is wrong with native keys.

    `version` is megatron-core's, None the newest supported one. `mla` says whether the attention is multi-latent,
    `has_dataset` whether the data are Megatron's own. Raises HostError for a version that is not supported.
    """
    release = release_for(version) if version else RELEASES[-1]
    sections = load_schema("sections")
    placed = dict(sections["placed"])
    if mla:
        placed["transformer"] = sections["mla"]
    if not has_dataset:
        del placed["dataset"]
    classes = load_schema(release.name)["classes"] | sections["classes"]
    return check_tree(config, FileCatalog(classes, TARGETS), placed)[1]


def check_tree(
    config: Mapping[str, Any], catalog: Catalog, placed: Mapping[str, str]
) -> tuple[dict[str, Any], list[Problem]]:
    """Check native keys against the classes that sit in the sections; return the keys that may be set, and problems."""
    homes = homes_in(catalog, placed)
    free, misplaced = _without_misplaced(config, placed)
    free, owned = without_owned(free, OWNED)
    free, shared = without_shared(free, homes, OWNED)
    owners = {path: OWNED.get(home, f"{PREFIX}.{home}") for path, home in homes.items()} | OWNED
    checker = Checker(backend=TARGETS.backend, catalog=catalog, placed=placed, owners=owners)
    return free, [*misplaced, *owned, *shared, *checker.check(free)]


def homes_in(catalog: Catalog, placed: Mapping[str, str]) -> dict[str, str]:
    """Return where each key that the placed classes share is set, as `shared_keys.homes` does."""
    fields: dict[str, Mapping[str, Node]] = {}
    for section in SECTIONS:
        info = catalog.find(placed[section]) if section in placed else None
        fields[section] = info["fields"] if info else {}
    return homes(fields)


@functools.cache
def load_schema(name: str) -> dict[str, Any]:
    """Read a data file: `sections` or that of a release, as the functions of `schema.generate` describe them."""
    file = importlib.resources.files("primus_hydra.backends.megatron.schema") / f"{name}.json"
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


def _without_misplaced(tree: Mapping[str, Any], placed: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Split off a dataset where there is none, and every `_target_` outside the model section."""
    free: dict[str, Any] = {}
    problems: list[Problem] = []
    for section, keys in tree.items():
        if section == "dataset" and section not in placed:
            what = "this job's data are not Megatron's own datasets, which these keys are for"
            problems.append(Problem(key=f"{PREFIX}.{section}", what=what, hint="set data=megatron, or leave them out"))
        elif section == TARGET:
            problems.append(_no_target(PREFIX))
        elif section != "model" and isinstance(keys, Mapping) and TARGET in keys:
            problems.append(_no_target(f"{PREFIX}.{section}"))
            free[section] = {key: value for key, value in keys.items() if key != TARGET}
        else:
            free[section] = keys
    return free, problems


def _no_target(path: str) -> Problem:
    what = "only the model section may name another class"
    return Problem(key=f"{path}.{TARGET}", what=what, hint=f"use {PREFIX}.model.{TARGET}, or set the fields themselves")
