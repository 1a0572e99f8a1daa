"""Stand-ins for modules that are imported at their first use."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from primus_hydra.patching.late import compiled_late, imported_late, not_installed

HEAVY = """
class Table:
    rows = 3
def load(path, *, split="train"):
    return (path, split)
"""
USER = """
from heavy_thing import Table, load
import heavy_thing.parts as parts
def first() -> Table | None:
    return load("x", split="test")
def is_table(value):
    return isinstance(value, Table)
def derived():
    class Better(Table):
        pass
    return Better
"""


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two packages: one that is slow to import, and one that imports it."""
    (tmp_path / "heavy_thing").mkdir()
    (tmp_path / "heavy_thing" / "__init__.py").write_text(HEAVY)
    (tmp_path / "heavy_thing" / "parts.py").write_text("answer = 42\ndef twice(x): return 2 * x\n")
    (tmp_path / "user_of_it.py").write_text(USER)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.startswith(("heavy_thing", "user_of_it"))]:
        del sys.modules[name]


def import_user() -> types.ModuleType:
    with imported_late("heavy_thing", "heavy_thing.parts"):
        return importlib.import_module("user_of_it")


def test_nothing_is_imported_before_it_is_used() -> None:
    user = import_user()
    assert not any(name.startswith("heavy_thing") for name in sys.modules)

    assert user.first() == ("x", "test")
    assert "heavy_thing" in sys.modules


def test_a_stand_in_serves_in_isinstance_as_a_base_and_as_a_module() -> None:
    user = import_user()

    assert not user.is_table([])
    assert user.is_table(importlib.import_module("heavy_thing").Table())
    assert user.derived().rows == 3
    assert user.parts.twice(4) == 8


def test_whoever_asks_inside_the_block_hears_that_the_module_is_installed() -> None:
    with imported_late("heavy_thing"):
        assert importlib.util.find_spec("heavy_thing") is not None


def test_a_module_that_is_missing_is_missed_as_ever() -> None:
    with imported_late("no_such_thing"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_thing")


def test_a_module_that_is_here_already_stays() -> None:
    real = importlib.import_module("heavy_thing")
    with imported_late("heavy_thing"):
        assert importlib.import_module("heavy_thing") is real


def test_a_hidden_package_is_missing_inside_the_block_only() -> None:
    with not_installed("heavy_thing"), pytest.raises(ImportError):
        importlib.import_module("heavy_thing.parts")

    assert importlib.import_module("heavy_thing.parts").answer == 42


def test_a_function_is_compiled_at_its_first_call_and_once() -> None:
    compiled: list[str] = []

    def compile_it(function, **options):
        compiled.append(f"{function.__name__} {options}")
        return lambda *args: ("compiled", *args)

    torch = types.ModuleType("torch_of_this_test")
    torch.compile = compile_it  # type: ignore[attr-defined]
    with compiled_late(torch):

        @torch.compile(dynamic=True)  # type: ignore[attr-defined]
        def fused(x):
            raise AssertionError("the compiled one is called")

    assert torch.compile is compile_it
    assert compiled == []
    assert [fused(1), fused(2)] == [("compiled", 1), ("compiled", 2)]
    assert compiled == ["fused {'dynamic': True}"]
