"""What a `_target_` may name, what is refused before anything is imported, and how objects are built."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config import allow
from primus_hydra.config.allow import AllowList, allow_list_of, installed_allow_list
from primus_hydra.config.instantiate import load_target, safe_instantiate
from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.tasks.contract import Task

FOREIGN = [
    "os.system",
    "posix.system",
    "builtins.eval",
    "builtins.getattr",
    "subprocess.Popen",
    "hydra.utils.get_method",
    "hydra.utils.instantiate",
    "logging.os.system",
    "importlib.import_module",
    "pickle.loads",
    "torch.load",
    "primus_hydra_evil.Run",
    "tests.support.make_job",
]

# Allowed by name, but what they lead to is not ours, or is no class and no function.
TRICKS = {
    "primus_hydra.config.instantiate.os.system": "has no os",
    "primus_hydra.config.instantiate.importlib.import_module": "importlib is neither a class nor a function",
    "primus_hydra.config.build.yaml.unsafe_load": "yaml is neither a class nor a function",
    "primus_hydra.config.build.Path": "pathlib.Path, defined outside",
    "primus_hydra.config.instantiate.cast": "typing.cast, defined outside",
    "primus_hydra.config.keys.all_keys.cache_clear": "neither a class nor a function",
    "primus_hydra.errors.UserError.with_traceback": "neither a class nor a function",
    "primus_hydra.config.build.load_job.__globals__": "__globals__ is a private name",
    "primus_hydra.config.build._Builder": "_Builder is a private name",
    "primus_hydra.config.instantiate.TARGET": "neither a class nor a function",
    "primus_hydra.errors": "is a module",
}

PLUGIN = """
import os
from dataclasses import dataclass
from subprocess import Popen
from primus_hydra.errors import Problem

@dataclass
class Box:
    content: object = None
    other: object = None

    @dataclass
    class Lid:
        colour: str = "red"

def double(number):
    return 2 * number

def fail():
    raise ZeroDivisionError("mine")
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package `boxes` that declares itself."""
    install(tmp_path, "boxes", "boxes = boxes", top_level="boxes")
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes" / "__init__.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    installed_allow_list.cache_clear()
    yield tmp_path
    installed_allow_list.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "boxes"]:
        del sys.modules[name]


def install(folder: Path, name: str, entry: str, *, top_level: str = "") -> Distribution:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{allow.ENTRY_POINT_GROUP}]\n{entry}\n", encoding="utf-8")
    (info / "top_level.txt").write_text(top_level, encoding="utf-8")
    return Distribution.at(info)


def declarations(distribution: Distribution) -> list[EntryPoint]:
    return list(distribution.entry_points)


@pytest.mark.parametrize("target", FOREIGN)
def test_a_foreign_target_is_refused_by_name_with_the_way_to_allow_it(target: str) -> None:
    with pytest.raises(UserError) as loading:
        load_target(target, object)
    with pytest.raises(UserError) as building:
        safe_instantiate({"_target_": target})

    package = target.partition(".")[0]
    for caught in (loading, building):
        (problem,) = caught.value.problems
        assert f"{target} is refused: {package} is not a package" in problem.what
        assert problem.hint is not None
        owner = "my_package" if package in sys.stdlib_module_names else package
        assert f'[project.entry-points."primus_hydra.targets"]\n{owner} = "{owner}"' in problem.hint


@pytest.mark.parametrize(("target", "reason"), TRICKS.items())
def test_an_allowed_name_that_leads_out_of_the_allowed_packages_is_refused(target: str, reason: str) -> None:
    for attempt in (lambda: load_target(target, object), lambda: safe_instantiate({"_target_": target})):
        with pytest.raises(UserError) as caught:
            attempt()
        assert reason in str(caught.value)


@pytest.mark.parametrize(
    "target", ["", "Task", "a..b", "a/b.c", "primus_hydra.", "primus_hydra.tasks.x y", 3, None, {}]
)
def test_what_is_no_dotted_path_is_refused(target: Any) -> None:
    with pytest.raises(UserError, match="dotted path"):
        safe_instantiate({"_target_": target})


@pytest.mark.parametrize("name", ["backends.torchtitan.adapter.X", "patches.x.Y", "conf.Z"])
def test_a_short_name_of_this_project_is_refused_with_the_full_one(name: str) -> None:
    with pytest.raises(UserError, match=f"write primus_hydra.{name}"):
        load_target(name, object)


def test_every_refused_target_of_a_tree_is_named_and_nothing_is_imported(plugin: Path) -> None:
    config = {
        "_target_": "boxes.Box",
        "content": [{"_target_": "os.system", "command": "true"}, {"deep": {"_target_": "builtins.eval"}}],
        "other": {"_target_": "boxes.Box", "_recursive_": False, "content": {"_target_": "subprocess.Popen"}},
    }

    with pytest.raises(UserError) as caught:
        safe_instantiate(config)

    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["content[0]._target_", "content[1].deep._target_", "other.content._target_"]
    assert "boxes" not in sys.modules


def test_load_target_gives_the_class_of_the_expected_type() -> None:
    from primus_hydra.tasks.deps import Deps

    assert load_target("primus_hydra.tasks.deps.Deps", Task) is Deps


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("primus_hydra.errors.Problem", "is not a Task"),
        ("primus_hydra.errors.raise_all", "is a function, expected a Task class"),
        ("primus_hydra.tasks.deps.Depz", "has no Depz\n    did you mean Deps"),
        ("primus_hydra.tasks.dep.Deps", "did you mean deps"),
        ("primus_hydra.tasks", "is a module"),
    ],
)
def test_a_wrong_target_of_ours_is_named_with_the_nearest(target: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_target(target, Task, key="task._target_")

    assert str(caught.value).startswith("task._target_: ")
    assert message in str(caught.value)


def test_a_declared_package_is_allowed_and_its_values_arrive_as_plain_data(plugin: Path) -> None:
    from omegaconf import OmegaConf

    config = OmegaConf.create(
        {"size": 3, "box": {"_target_": "boxes.Box", "content": {"a": [1, "${size}"]}, "other": None}}
    )

    box = safe_instantiate(config.box)

    assert type(box).__name__ == "Box"
    assert box.content == {"a": [1, 3]}
    assert type(box.content) is dict
    assert type(box.content["a"]) is list


def test_nested_targets_are_built_first(plugin: Path) -> None:
    lid = {"_target_": "boxes.Box.Lid", "colour": "blue"}

    box = safe_instantiate({"_target_": "boxes.Box", "content": [lid], "other": {"lid": lid}})

    assert box.content[0].colour == box.other["lid"].colour == "blue"


def test_the_special_keys_work_as_in_hydra(plugin: Path) -> None:
    lid = {"_target_": "boxes.Box.Lid"}

    partial = safe_instantiate({"_target_": "boxes.Box", "_partial_": True, "content": lid})
    raw = safe_instantiate({"_target_": "boxes.Box", "_recursive_": False, "content": lid})
    positional = safe_instantiate({"_target_": "boxes.double", "_args_": [4], "_convert_": "all"})

    assert isinstance(partial, functools.partial)
    assert partial().content.colour == "red"
    assert raw.content == lid
    assert positional == 8


@pytest.mark.parametrize(
    ("name", "value"),
    [("_partial_", "yes"), ("_recursive_", 1), ("_args_", "abc"), ("_convert_", "none"), ("_convert_", "object")],
)
def test_special_keys_that_mean_nothing_here_are_refused(name: str, value: object) -> None:
    with pytest.raises(UserError, match=name):
        safe_instantiate({"_target_": "primus_hydra.errors.Problem", "what": "x", name: value})


def test_arguments_from_code_win_and_are_not_read_as_configuration(plugin: Path) -> None:
    passed = {"_target_": "os.system"}

    box = safe_instantiate({"_target_": "boxes.Box", "content": 1}, content=passed)

    assert box.content is passed
    assert safe_instantiate({"_target_": "boxes.double", "_args_": [1]}, 5) == 10


def test_the_expected_type_is_demanded_of_classes_and_of_results(plugin: Path) -> None:
    problem = safe_instantiate({"_target_": "primus_hydra.errors.Problem", "what": "x"}, _expected_=Problem)
    assert problem.what == "x"

    with pytest.raises(UserError, match=r"boxes\.Box is not a Problem"):
        safe_instantiate({"_target_": "boxes.Box"}, _expected_=Problem)
    with pytest.raises(UserError, match="gave a int, expected a Problem"):
        safe_instantiate({"_target_": "boxes.double", "number": 1}, _expected_=Problem)


def test_what_a_target_raises_passes_through(plugin: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="mine"):
        safe_instantiate({"_target_": "boxes.fail"})


def test_what_an_allowed_package_only_imports_stays_refused(plugin: Path) -> None:
    with pytest.raises(UserError, match=r"it is subprocess\.Popen, defined outside"):
        load_target("boxes.Popen", object)
    assert load_target("boxes.Problem", Problem) is Problem


@pytest.mark.parametrize("config", [{}, {"a": 1}, [], None, "os.system"])
def test_a_node_without_a_target_is_refused(config: Any) -> None:
    with pytest.raises(UserError, match="no _target_"):
        safe_instantiate(config)


def test_a_missing_requirement_of_a_target_is_the_hosts_lack(plugin: Path) -> None:
    (plugin / "boxes" / "needy.py").write_text("import a_package_that_nobody_has", encoding="utf-8")

    with pytest.raises(HostError, match="needs the module a_package_that_nobody_has"):
        load_target("boxes.needy.Box", object)


@pytest.mark.parametrize(
    ("entry", "top_level", "allowed"),
    [
        ("mine = my_pkg", "my_pkg", True),
        ("mine = my_pkg.tasks", "my_pkg\nmy_other", True),
        ("mine = my_other", "my_pkg\nmy_other", True),
        ("mine = os", "my_pkg", False),
        ("mine = torch.nn", "my_pkg", False),
        ("mine = my_pkg_evil", "my_pkg", False),
        ("mine = my_pkg:Task", "my_pkg", False),
        # An editable install may list nothing: then the distribution's own name counts, and nothing else.
        ("mine = my_dist", "", True),
        ("mine = subprocess", "", False),
    ],
)
def test_a_package_may_allow_only_itself(entry: str, top_level: str, allowed: bool, tmp_path: Path) -> None:
    value = entry.rpartition(" ")[2]
    judged = allow_list_of(declarations(install(tmp_path, "my-dist", entry, top_level=top_level)))

    assert judged.allows(f"{value}.X") is allowed
    assert bool(judged.refused) is not allowed
    assert judged.allows("primus_hydra.tasks.deps.Deps")


def test_a_refused_declaration_is_told_where_it_would_have_mattered(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = AllowList(refused=("evil = os: os is not a package of evil, which declares it",))
    monkeypatch.setattr("primus_hydra.config.instantiate.installed_allow_list", lambda: refused)

    with pytest.raises(UserError, match="not counted: evil = os"):
        load_target("os.system", object)


def test_a_prefix_ends_at_a_dot() -> None:
    allowed = AllowList(prefixes=("primus_hydra", "my_pkg.tasks"))

    verdicts = {
        name: allowed.allows(name) for name in ("my_pkg.tasks.T", "my_pkg.T", "my_pkg.tasksx.T", "primus_hydrax.T")
    }
    assert verdicts == {"my_pkg.tasks.T": True, "my_pkg.T": False, "my_pkg.tasksx.T": False, "primus_hydrax.T": False}
