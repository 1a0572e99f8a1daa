"""Which code a job runs: this project's and its targets', from where this process has them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import primus_hydra
from primus_hydra.launch import contained
from primus_hydra.launch.job_code import ALONE, code_of, code_roots, package_root, snapshot_code, target_packages
from tests.support import make_job

PROJECT = Path(primus_hydra.__file__).parents[1]
PACKAGE = "package_of_a_user"
OWN = {"backend._target_": f"{PACKAGE}.Adapter"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which a user's package is imported."""
    folder = tmp_path / "project"
    (folder / PACKAGE).mkdir(parents=True)
    (folder / PACKAGE / "__init__.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop(PACKAGE, None)


def test_packages_are_those_that_targets_name():
    tree = {"a": {"_target_": "one.x.Y"}, "b": [{"_target_": "two.Z"}, "three.q"], "backend": {"trainer": "four.T"}}
    assert target_packages(tree) == ["four", "one", "two"]
    assert target_packages({"_target_": "primus_hydra.tasks.train.Train"}) == []


def test_the_code_of_a_job_is_this_project_and_its_own(package: Path):
    assert code_roots(make_job()) == [PROJECT]
    assert code_roots(make_job(OWN)) == [PROJECT, package]
    code = code_of(make_job(OWN))
    assert code.python_path[:2] == (str(PROJECT), str(package))
    assert all(mount.read_only for mount in code.mounts)
    assert code.module_file(contained) == str(Path(contained.__file__))


def test_an_installed_package_comes_without_its_neighbours(package: Path, monkeypatch: pytest.MonkeyPatch):
    installed = package.rename(package.parent / "site-packages")
    monkeypatch.syspath_prepend(str(installed))
    code = code_of(make_job(OWN))
    assert code.python_path == (str(PROJECT), ALONE)
    assert [(mount.source, mount.target) for mount in code.mounts[1:]] == [
        (str(installed / PACKAGE), f"{ALONE}/{PACKAGE}")
    ]
    assert code_roots(make_job(OWN)) == [PROJECT]


def test_a_package_that_is_not_here_has_no_folder():
    assert package_root("no_such_package_anywhere") is None
    assert package_root("json") is not None


def test_a_snapshot_is_taken_of_all_of_it_unless_it_is_not_wanted(package: Path, tmp_path: Path):
    job = make_job({**OWN, "launch.snapshot": True})
    taken = snapshot_code(job, tmp_path / "code", without=tmp_path / "runs")
    assert [snapshot.source for snapshot in taken] == [str(PROJECT), str(package)]
    assert (taken[1].code / PACKAGE / "__init__.py").read_text() == "VALUE = 1\n"
    unwanted = make_job({**OWN, "launch.snapshot": False})
    assert snapshot_code(unwanted, tmp_path / "code", without=tmp_path / "runs") == ()
