"""Which patch modules are imported, and that importing them stays light."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import primus_hydra.patches
from primus_hydra.errors import HostError
from primus_hydra.patching import REGISTRY, PatchDefinitionError, load_patches

ROOT = Path(__file__).resolve().parents[3]

PATCH = """
from primus_hydra.patching import register_patch

@register_patch("{id}", backend="{backend}", phase="setup", why="A test.")
def patch(context):
    pass
"""

# Imports every patch module there is, with whatever trains made unimportable.
IMPORT_ALL = """
import importlib, pkgutil, sys
from importlib.abc import MetaPathFinder

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "torchtitan", "megatron", "transformers", "torchao"}:
            raise ImportError(f"{name} was imported while patches were loaded")

sys.meta_path.insert(0, Refuse())
import primus_hydra.patches as patches
patches.__path__.extend(sys.argv[1:])
for module in pkgutil.walk_packages(patches.__path__, "primus_hydra.patches."):
    importlib.import_module(module.name)
    print(module.name)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose packages count as patch packages; what they import and register is undone."""
    modules, registered = set(sys.modules), dict(REGISTRY._patches)
    monkeypatch.setattr(primus_hydra.patches, "__path__", [*primus_hydra.patches.__path__, str(tmp_path)])
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    REGISTRY._patches = registered
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, name: str, text: str = "") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def declare(folder: Path, name: str, entry: str) -> None:
    write(folder, f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    write(folder, f"{name}-1.0.dist-info/entry_points.txt", f"[primus_hydra.patches]\n{entry}\n")


def ids(backend: str) -> list[str]:
    return [patch.id for patch in REGISTRY.patches(backend)]


def test_every_module_of_the_backend_is_imported_and_no_other_backend(folder: Path) -> None:
    write(folder, "titanx/__init__.py")
    write(folder, "titanx/device.py", PATCH.format(id="titanx.device", backend="titanx"))
    write(folder, "titanx/deep/__init__.py")
    write(folder, "titanx/deep/seed.py", PATCH.format(id="titanx.seed", backend="titanx"))
    write(folder, "otherx/__init__.py", "raise RuntimeError('not mine')")

    loaded = load_patches("titanx")

    assert "primus_hydra.patches.titanx.deep.seed" in loaded
    assert set(ids("titanx")) >= {"titanx.device", "titanx.seed"}
    assert load_patches("titanx") == loaded


def test_patches_for_every_backend_are_loaded_with_each(folder: Path) -> None:
    write(folder, "common/__init__.py", PATCH.format(id="everywhere", backend="*"))

    load_patches("titanx")

    assert "everywhere" in ids("titanx")


def test_a_backend_without_patches_is_fine(folder: Path) -> None:
    assert load_patches("has_none") == ()
    assert load_patches("no-module-name") == ()


def test_a_package_outside_adds_patches_by_an_entry_point(folder: Path) -> None:
    write(folder, "outside_titan.py", PATCH.format(id="outside.one", backend="titanx"))
    write(folder, "outside_other.py", "raise RuntimeError('not mine')")
    declare(folder, "outside", "titanx = outside_titan\notherx = outside_other")

    assert load_patches("titanx") == ("outside_titan",)
    assert "outside.one" in ids("titanx")


def test_an_entry_point_that_cannot_be_imported_names_its_package(folder: Path) -> None:
    declare(folder, "outside", "titanx = outside_is_gone")

    with pytest.raises(HostError, match="the patches of outside cannot be imported"):
        load_patches("titanx")


def test_a_patch_module_that_imports_the_backend_is_refused(folder: Path) -> None:
    write(folder, "titanx.py")
    write(folder, "heavy/__init__.py")
    declare(folder, "outside", "titanx = heavy_patches")
    write(folder, "heavy_patches.py", "import titanx")

    with pytest.raises(PatchDefinitionError, match="heavy_patches imports titanx"):
        load_patches("titanx")


def import_all(*extra: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IMPORT_ALL, *map(str, extra)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_no_patch_module_imports_torch_or_a_backend(tmp_path: Path) -> None:
    done = import_all()
    assert done.returncode == 0, done.stderr

    write(tmp_path, "titanx/__init__.py", "import torch")
    assert "torch was imported while patches were loaded" in import_all(tmp_path).stderr


@pytest.mark.parametrize("name", ["patches", "backends", "conf"])
def test_a_short_name_is_no_way_to_import_a_package_of_this_project(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)

    with pytest.raises(ImportError, match=f"import primus_hydra.{name}, not {name}"):
        importlib.import_module(name)

    assert name not in sys.modules
    assert importlib.import_module(f"primus_hydra.{name}").__name__ == f"primus_hydra.{name}"
