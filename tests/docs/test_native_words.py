"""Every native key that a file of ours names is one that an installed backend has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from primus_hydra.backends.megatron.native_keys import load_schema as megatron_schema
from primus_hydra.backends.megatron.versions import installed_version, release_for
from primus_hydra.backends.torchtitan.native_keys import load_schema as torchtitan_schema
from primus_hydra.backends.torchtitan.versions import RELEASES

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"backend\.config\.([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+)")


def fields_of(placed: Mapping[str, str], classes: Mapping[str, Any]) -> set[str]:
    return {
        f"{path}.{field}" if path else field
        for path, name in placed.items()
        if name in classes
        for field in classes[name]["fields"]
    }


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The native keys of the installed backends."""
    version = installed_version("megatron-core")
    assert version is not None
    sections, titan = megatron_schema("sections"), torchtitan_schema(RELEASES[-1].name)
    megatron = megatron_schema(release_for(version).name)["classes"] | sections["classes"]
    latent = {"transformer": sections["mla"]}
    return (
        fields_of(sections["placed"], megatron)
        | fields_of(latent, megatron)
        | fields_of(titan["placed"], titan["classes"])
    )


def named_in(file: Path) -> set[str]:
    return set(NAMED.findall(file.read_text(encoding="utf-8")))


def native_keys(tree: Any, prefix: str = "") -> set[str]:
    if not isinstance(tree, Mapping):
        return {prefix}
    return {key for name, below in tree.items() for key in native_keys(below, f"{prefix}.{name}" if prefix else name)}


def stale(names: set[str], known: set[str]) -> set[str]:
    return {name for name in names if name not in known and not name.endswith("_target_")}


def test_a_key_that_no_backend_has_would_be_noticed(known: set[str]) -> None:
    assert stale({"transformer.num_layers", "transformer.recompute_methods"}, known) == {
        "transformer.recompute_methods"
    }


@pytest.mark.parametrize("folder", ["docs", "backends", "patches"])
def test_keys_named_in_pages_and_hints_exist(folder: str, known: set[str]) -> None:
    files = [file for kind in ("*.md", "*.py") for file in (ROOT / folder).rglob(kind)]
    assert files
    wrong = {str(file.relative_to(ROOT)): stale(named_in(file), known) for file in files}
    assert {file: names for file, names in wrong.items() if names} == {}


def test_keys_set_in_group_files_exist(known: set[str]) -> None:
    for file in (ROOT / "conf").rglob("*.yaml"):
        tree = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        config = (tree.get("backend") or {}).get("config") if file.parent.name != "backend" else tree.get("config")
        assert stale(native_keys(config or {}) - {""}, known) == set(), file
