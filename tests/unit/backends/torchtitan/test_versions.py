from __future__ import annotations

from pathlib import Path

import pytest

from primus_hydra.backends.torchtitan import versions
from primus_hydra.backends.torchtitan.adapter import TorchTitanAdapter
from primus_hydra.backends.torchtitan.versions import check_torch, find_torchtitan, release_for
from primus_hydra.errors import HostError, UserError
from tests.support import make_job


def make_checkout(root: Path, version: str | None = "0.3.1") -> Path:
    (root / "torchtitan").mkdir(parents=True)
    (root / "torchtitan" / "trainer.py").touch()
    if version is not None:
        (root / "assets").mkdir()
        (root / "assets" / "version.txt").write_text(f"{version}\n")
    return root


def install(monkeypatch: pytest.MonkeyPatch, **packages: str) -> None:
    monkeypatch.setattr(versions, "installed_version", packages.get)


@pytest.mark.parametrize("version", ["0.3.0", "0.3.7", "0.3.0+local"])
def test_a_supported_version_is_served(version: str) -> None:
    assert release_for(version).name == "0.3"


@pytest.mark.parametrize("version", ["0.2.2", "0.4.0", "0.0.0", "unknown"])
def test_an_unsupported_torchtitan_is_refused_by_name(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.14.1")
    with pytest.raises(HostError) as caught:
        release_for(version)
    (problem,) = caught.value.problems
    assert f"torchtitan {version} (with torch 2.14.1)" in problem.what
    assert ">=0.3.0,<0.4" in problem.what
    assert problem.hint == 'pip install "torchtitan==0.3.0" "torch>=2.14,<2.15"'


@pytest.mark.parametrize("version", ["2.13.0", "2.15.0", "2.15.0.dev20260101", None])
def test_an_unsupported_torch_is_refused_by_name(version: str | None) -> None:
    with pytest.raises(HostError) as caught:
        check_torch(release_for("0.3.0"), torchtitan="0.3.0", torch=version)
    (problem,) = caught.value.problems
    assert "torchtitan 0.3.0 needs torch >=2.14,<2.15" in problem.what
    assert (version or "is missing") in problem.what


@pytest.mark.parametrize("version", ["2.14.0", "2.14.1+rocm7.1", "2.14.0.dev20251101+cu130"])
def test_builds_of_a_supported_torch_are_taken(version: str) -> None:
    check_torch(release_for("0.3.0"), torchtitan="0.3.0", torch=version)


def test_the_configured_checkout_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.14.1", torchtitan="0.3.0")
    ours, theirs = make_checkout(tmp_path / "ours", "0.3.1"), make_checkout(tmp_path / "theirs", "0.3.2")
    environ = {"BACKEND_PATH": str(theirs)}
    found = find_torchtitan(str(ours), environ)
    assert (found.checkout, found.version) == (ours, "0.3.1")
    assert find_torchtitan(None, environ).checkout == theirs
    assert find_torchtitan(None, {}).checkout is None


@pytest.mark.parametrize("source", ["backend.path", "BACKEND_PATH"])
def test_a_named_checkout_must_exist(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.14.1", torchtitan="0.3.0")
    path, environ = (str(tmp_path), {}) if source == "backend.path" else (None, {source: str(tmp_path)})
    with pytest.raises(UserError) as caught:
        find_torchtitan(path, environ)
    assert caught.value.problems[0].key == source


def test_the_third_party_folder_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = make_checkout(tmp_path / "torchtitan")
    environ = {"PRIMUS_THIRDPARTY_DIR": str(tmp_path)}
    install(monkeypatch, torch="2.14.1", torchtitan="0.3.0")
    assert find_torchtitan(None, environ).checkout is None
    install(monkeypatch, torch="2.14.1")
    assert find_torchtitan(None, environ).checkout == checkout


def test_nothing_found_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.14.1")
    with pytest.raises(HostError, match="torchtitan is not installed"):
        find_torchtitan(None, {})


def test_a_checkout_goes_in_front_of_the_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.14.1")
    monkeypatch.setattr("sys.path", ["somewhere"])
    checkout = make_checkout(tmp_path)
    adapter = TorchTitanAdapter(make_job({"backend.path": str(checkout)}))
    assert adapter.setup_backend_path() == checkout
    assert adapter.setup_backend_path() == checkout
    assert __import__("sys").path == [str(checkout), "somewhere"]
    assert adapter.detect_backend_version() == "0.3.1"


def test_a_bad_checkout_is_one_of_the_problems(tmp_path: Path) -> None:
    adapter = TorchTitanAdapter(make_job({"backend.path": str(tmp_path), "parallel.sharding": "optimizer"}))
    assert {problem.key for problem in adapter.problems()} == {"backend.path", "parallel.sharding"}
