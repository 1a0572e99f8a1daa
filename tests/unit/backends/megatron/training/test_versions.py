"""Where `megatron.training` is found, and which mixtures are refused."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from primus_hydra.backends.megatron.training.versions import find_training, release_for, require_one_place
from primus_hydra.errors import HostError, UserError

INSTALLED = version("megatron-core")
WITHOUT_TRAINING = INSTALLED.startswith("0.16")
only_without_training = pytest.mark.skipif(
    not WITHOUT_TRAINING, reason="cannot be had here: this Megatron brings its training"
)


def checkout(root: Path, *, training: bool = True, number: str = "0.19.2") -> Path:
    """Make the outline of a checkout of Megatron-LM."""
    core = root / "megatron" / "core"
    core.mkdir(parents=True)
    (core / "__init__.py").touch()
    major, minor, patch = number.split(".")
    stated = f"MAJOR = {major}\nMINOR = {minor}\nPATCH = {patch}\nPRE_RELEASE = ''\n"
    (core / "package_info.py").write_text(stated)
    if training:
        add_training(root)
    return root


def add_training(root: Path) -> None:
    folder = root / "megatron" / "training"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "training.py").touch()


@only_without_training
def test_a_package_without_training_is_refused_with_both_ways_out() -> None:
    with pytest.raises(HostError) as raised:
        find_training(None, {})
    (problem,) = raised.value.problems
    assert problem.what.startswith(f"megatron-core {INSTALLED}, which is installed, holds no megatron/training")
    assert 'pip install "megatron-core==0.19.2"' in (problem.hint or "")
    assert "backend.path" in (problem.hint or "")


def test_a_checkout_named_by_key_or_environment_is_found(tmp_path: Path) -> None:
    root = checkout(tmp_path / "here")
    for found in (find_training(str(root), {}), find_training(None, {"BACKEND_PATH": str(root)})):
        assert (found.version, found.checkout) == ("0.19.2", root)


def test_a_checkout_without_training_is_refused(tmp_path: Path) -> None:
    root = checkout(tmp_path, training=False)
    # An installed training of another core would stand in for the missing one, and is no way out.
    found = r"holds no megatron/training/training\.py" if WITHOUT_TRAINING else "this would mix two Megatrons"
    with pytest.raises(HostError, match=found):
        find_training(str(root), {})


def test_a_folder_that_is_no_checkout_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a checkout"):
        find_training(str(tmp_path), {})


def test_a_version_that_nothing_was_tried_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"0\.16\.1 is not supported; supported is >=0\.19,<0\.20"):
        find_training(str(checkout(tmp_path, number="0.16.1")), {})
    assert release_for("0.19.2").name == "0.19"


@only_without_training
def test_the_core_of_a_package_with_the_training_of_a_folder_is_refused_with_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_training(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(HostError) as raised:
        find_training(None, {})
    (problem,) = raised.value.problems
    assert problem.what.startswith("this would mix two Megatrons: megatron.core from ")
    assert f"megatron.training from {tmp_path / 'megatron' / 'training'}" in problem.what


@only_without_training
def test_a_checkout_that_hides_the_installed_package_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # A process of our own has not imported it yet.
    monkeypatch.delitem(sys.modules, "megatron.core", raising=False)
    with pytest.raises(HostError) as raised:
        find_training(None, {})
    (problem,) = raised.value.problems
    assert problem.what.startswith(f"megatron-core {INSTALLED} is installed, but Python would import 0.19.2 from")
    assert f"backend.path={tmp_path}" in (problem.hint or "")


def test_parts_that_were_imported_from_two_places_are_refused(tmp_path: Path) -> None:
    places = {"megatron.core": tmp_path / "a" / "core", "megatron.training": tmp_path / "b" / "training"}
    with pytest.raises(HostError, match="this would mix two Megatrons"):
        require_one_place(places)
    require_one_place({name: tmp_path / name for name in places})
